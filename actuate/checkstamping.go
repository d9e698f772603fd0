package actuate

import (
	"errors"
	"fmt"
	"net"
	"os"

	"autotune/model"

	"golang.org/x/sys/unix"
)

const stampsConsequence = "ring wait is worked out from polls, since packets carry no time of their arrival"

// stamping tells which devices of this namespace stamp what they receive.
func (c *checks) stamping() {
	found, err := hostStamping()
	if err != nil {
		c.add("receive time stamps", err, "", finding{
			state: model.FindingDegraded, consequence: stampsConsequence, remedy: "allow sockets and interface requests",
		})
	}
	if err != nil && len(found) == 0 {
		return
	}
	c.findings = append(c.findings, stampingFindings(found, canRead)...)
}

// deviceStamping is how one device stamps.
type deviceStamping struct {
	ifname   string
	stamping model.Stamping
}

func hostStamping() ([]deviceStamping, error) {
	fd, err := openStamping()
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	links, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network devices: %w", err)
	}
	var found []deviceStamping
	var errs []error
	for _, l := range links {
		stamping, err := askStamping(fd, l.Name)
		if err != nil && !errors.Is(err, model.ErrGone) {
			errs = append(errs, err)
		}
		if stamping != nil {
			found = append(found, deviceStamping{l.Name, *stamping})
		}
	}
	return found, errors.Join(errs...)
}

// canRead tries to open a device's clock.
func canRead(clock int) error {
	file, err := os.Open(clockPath(clock))
	if err != nil {
		return err
	}
	return file.Close()
}

func clockPath(clock int) string { return fmt.Sprintf("/dev/ptp%d", clock) }

// stampingFindings has a finding per device that could stamp, or one that says
// that there is none. Time stamps are the operator's to switch on: they change
// what the device does with every packet, and PTP daemons set them as well.
func stampingFindings(found []deviceStamping, open func(clock int) error) []model.Finding {
	const name = "receive time stamps"
	if len(found) == 0 {
		return []model.Finding{{
			Area: areaDevice, Name: name, State: model.FindingOK,
			Detail: "no device has a clock for them: ring wait is worked out from polls",
		}}
	}
	var findings []model.Finding
	for _, d := range found {
		f := model.Finding{Area: areaDevice, Name: name + " of " + d.ifname, State: model.FindingOK}
		filter := "unknown"
		if d.stamping.Filter != nil {
			filter = *d.stamping.Filter
		}
		f.Detail = fmt.Sprintf("%s, filter %s", clockPath(d.stamping.Clock), filter)
		switch err := open(d.stamping.Clock); {
		case err != nil:
			f.State, f.Detail = model.FindingDegraded, f.Detail+": "+err.Error()
			f.Consequence = stampsConsequence
			f.Remedy = "make " + clockPath(d.stamping.Clock) + " readable here"
		case filter == "all" || filter == "unknown":
			f.Detail += ": used for ring wait where packets carry one"
		case !d.stamping.All:
			f.Detail += ": the device cannot stamp all packets, so ring wait is worked out from polls"
		default:
			f.State = model.FindingDegraded
			f.Consequence = stampsConsequence
			f.Remedy = fmt.Sprintf("`hwstamp_ctl -i %s -r 1` (of linuxptp) stamps all packets; autotune does not switch it on", d.ifname)
		}
		findings = append(findings, f)
	}
	return findings
}
