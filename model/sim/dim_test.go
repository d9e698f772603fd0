package sim

import "testing"

// feed runs one measurement of 64 interrupts that took so long and brought so
// many packets, and applies what is decided.
func feed(d *dim, s *dimSample, micros int64, packets uint64) {
	s.at += micros * 1000
	s.packets += packets
	s.bytes += packets * 100
	s.events += dimEvents
	r := newRandom(1)
	if d.update(*s, 0, &r) {
		d.applied()
		d.update(*s, 0, &r)
	}
}

func TestDIMClimbsWhileItHelpsAndParks(t *testing.T) {
	d := dim{profile: dimStartProfile}
	var s dimSample
	r := newRandom(1)
	d.update(s, 0, &r)
	profiles := []int{d.profile}
	// Packets come at the same rate; each profile halves the interrupts, so
	// that the same 64 take twice as long.
	for range 8 {
		feed(&d, &s, 1000<<d.profile, 100<<d.profile)
		profiles = append(profiles, d.profile)
	}
	if got := profiles[len(profiles)-1]; got != dimProfiles-1 {
		t.Errorf("profiles %v: want the last one in the end", profiles)
	}
	if d.state != dimParkingOnTop {
		t.Errorf("state %d, want parked on top", d.state)
	}
	parked := d.profile
	feed(&d, &s, 1000<<d.profile, 100<<d.profile)
	if d.profile != parked {
		t.Error("left the parking place though nothing changed")
	}
	feed(&d, &s, 1000<<d.profile, 200<<d.profile)
	if d.profile == parked {
		t.Error("stayed parked though the rate doubled")
	}
}

func TestDIMComparesInTheKernelsOrder(t *testing.T) {
	previous := dimStats{bytes: 1000, packets: 100, events: 50}
	tests := []struct {
		name    string
		current dimStats
		want    dimComparison
	}{
		{"more bytes are better whatever the rest", dimStats{1111, 10, 500}, dimBetter},
		{"fewer bytes are worse", dimStats{880, 200, 1}, dimWorse},
		{"at equal bytes more packets are better", dimStats{1050, 112, 500}, dimBetter},
		{"at equal packets fewer interrupts are better", dimStats{1000, 100, 44}, dimBetter},
		{"more interrupts are worse", dimStats{1000, 100, 56}, dimWorse},
		{"10% is no difference", dimStats{1100, 110, 55}, dimSame},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := compareDIM(tt.current, previous); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

func TestDIMWaitsForItsProfileToTakeEffect(t *testing.T) {
	d := dim{profile: dimStartProfile}
	r := newRandom(1)
	var s dimSample
	d.update(s, 0, &r)
	s = dimSample{at: 1e6, packets: 100, bytes: 1000, events: dimEvents}
	if !d.update(s, 0, &r) {
		t.Fatal("the first measurement is better than none: want a step")
	}
	chosen := d.profile
	for range 5 {
		s.at += 1e6
		s.events += dimEvents
		s.packets += 1000
		if d.update(s, 0, &r) || d.profile != chosen {
			t.Fatal("decided again before the profile took effect")
		}
	}
}
