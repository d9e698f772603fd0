package actuate

import (
	"errors"

	"autotune/model"
)

// target is what takes one setting: a NAPI instance or a whole device.
type target interface {
	read() (model.Settings, error)
	// write brings it from one setting to another. What is refused singly is
	// left out and returned; the rest is written.
	write(from, to model.Settings) error
	// op names the write.
	op() string
}

func (h *Host) target(t *tracked) target {
	if t.key.Index == WholeDevice {
		return deviceTarget{h.kernel, t.device.link.Index}
	}
	return napiTarget{h.kernel, t.device.link.Index, t.id}
}

type napiTarget struct {
	kernel  Kernel
	ifindex int
	id      uint32
}

func (n napiTarget) op() string { return "napi-set" }

func (n napiTarget) read() (model.Settings, error) { return readBack(n.kernel, n.ifindex, n.id) }

func (n napiTarget) write(from, to model.Settings) error { return write(n.kernel, n.id, from, to) }

type deviceTarget struct {
	kernel  Kernel
	ifindex int
}

func (d deviceTarget) op() string { return "sysfs" }

// read looks the device up first, since sysfs knows it by a name that may have
// changed.
func (d deviceTarget) read() (model.Settings, error) {
	link, err := d.kernel.LinkAt(d.ifindex)
	if err != nil {
		return model.Settings{}, err
	}
	defaults, err := d.kernel.Defaults(link)
	return defaults.settings(), err
}

func (d deviceTarget) write(from, to model.Settings) error {
	link, err := d.kernel.LinkAt(d.ifindex)
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range deviceKnobs() {
		if k.of(from) != k.of(to) {
			errs = append(errs, d.kernel.SetDefault(link, k, k.of(to)))
		}
	}
	return errors.Join(errs...)
}

// settings are what all instances of the device are set to where they have no
// values of their own.
func (d Defaults) settings() model.Settings {
	return model.Settings{DeferHardIRQs: d.DeferHardIRQs, GROFlushTimeout: d.GROFlushTimeout}
}

// deviceKnobs are those that a device has.
func deviceKnobs() [2]Knob { return [2]Knob{KnobDefer, KnobFlush} }
