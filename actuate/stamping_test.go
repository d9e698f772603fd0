package actuate

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestStampingIsReadFromWhatTheDriverTells(t *testing.T) {
	const hardware = unix.SOF_TIMESTAMPING_RX_HARDWARE | unix.SOF_TIMESTAMPING_RAW_HARDWARE
	for _, test := range []struct {
		name string
		info unix.EthtoolTsInfo
		want *model.Stamping
	}{
		{"all packets", unix.EthtoolTsInfo{So_timestamping: hardware, Phc_index: 3, Rx_filters: 1<<unix.HWTSTAMP_FILTER_NONE | 1<<unix.HWTSTAMP_FILTER_ALL}, &model.Stamping{Clock: 3, All: true}},
		{"PTP only", unix.EthtoolTsInfo{So_timestamping: hardware, Phc_index: 0, Rx_filters: 1 << unix.HWTSTAMP_FILTER_PTP_V2_EVENT}, &model.Stamping{}},
		{"no clock", unix.EthtoolTsInfo{So_timestamping: hardware, Phc_index: -1}, nil},
		{"a clock, but no stamps of what is received", unix.EthtoolTsInfo{So_timestamping: unix.SOF_TIMESTAMPING_TX_HARDWARE, Phc_index: 1}, nil},
		{"a veth", unix.EthtoolTsInfo{So_timestamping: unix.SOF_TIMESTAMPING_RX_SOFTWARE, Phc_index: -1}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, stampingOf(&test.info)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFiltersHaveTheNamesOfEthtool(t *testing.T) {
	for filter, want := range map[int32]string{
		0: "none", 1: "all", 12: "ptpv2-event", 15: "ntp-all", 16: "filter 16", -1: "filter -1",
	} {
		if got := filterName(filter); got != want {
			t.Errorf("filter %d is %q, want %q", filter, got, want)
		}
	}
}

func TestDoctorSaysHowPacketsAreStamped(t *testing.T) {
	filter := func(s string) *string { return &s }
	for _, test := range []struct {
		name   string
		found  []deviceStamping
		err    error
		state  model.FindingState
		detail string
		remedy string
	}{
		{"no device can", nil, nil, model.FindingOK, "no device", ""},
		{"on", []deviceStamping{{"eth0", model.Stamping{Clock: 1, Filter: filter("all"), All: true}}}, nil, model.FindingOK, "/dev/ptp1, filter all: used", ""},
		{"off", []deviceStamping{{"eth0", model.Stamping{Filter: filter("none"), All: true}}}, nil, model.FindingDegraded, "filter none", "hwstamp_ctl -i eth0 -r 1"},
		{"of PTP where all could be", []deviceStamping{{"eth0", model.Stamping{Filter: filter("ptpv2-event"), All: true}}}, nil, model.FindingDegraded, "filter ptpv2-event", "hwstamp_ctl -i eth0 -r 1"},
		{"of PTP only", []deviceStamping{{"eth0", model.Stamping{Filter: filter("ptpv2-event")}}}, nil, model.FindingOK, "cannot stamp all", ""},
		{"by a driver that does not tell", []deviceStamping{{"eth0", model.Stamping{All: true}}}, nil, model.FindingOK, "filter unknown", ""},
		{"by a clock that is not in this container", []deviceStamping{{"eth0", model.Stamping{Filter: filter("all"), All: true}}}, fs.ErrNotExist, model.FindingDegraded, "file does not exist", "make /dev/ptp0 readable"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := stampingFindings(test.found, func(int) error { return test.err })
			if len(got) != 1 {
				t.Fatalf("%d findings", len(got))
			}
			f := got[0]
			if f.State != test.state || !strings.Contains(f.Detail, test.detail) || !strings.Contains(f.Remedy, test.remedy) {
				t.Errorf("%+v", f)
			}
			if degraded := f.State != model.FindingOK; degraded != (f.Consequence != "") || degraded != (f.Remedy != "") {
				t.Errorf("a finding that is %s with consequence %q and remedy %q", f.State, f.Consequence, f.Remedy)
			}
		})
	}
}

func TestThisHostsDevicesTellOfStamping(t *testing.T) {
	found, err := hostStamping()
	if err != nil && !errors.Is(err, unix.EPERM) {
		t.Errorf("%+v: %v", found, err)
	}
}
