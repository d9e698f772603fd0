package netdev

import "fmt"

// Device is one reply of dev-get.
type Device struct {
	Ifindex int
	// XDPFeatures is the mask of enum netdev_xdp_act; nil where not reported.
	XDPFeatures *uint64
}

func parseDevice(data []byte) (Device, error) {
	var d Device
	err := decodeAttributes(data, "dev", devAttrName, func(attr uint16, value []byte) error {
		switch attr {
		case attrDevIfindex:
			v, err := fixed32(value)
			d.Ifindex = int(v)
			return err
		case attrDevXDPFeatures:
			v, err := decodeUint(value)
			if err != nil {
				return err
			}
			d.XDPFeatures = &v
		}
		return nil
	})
	if err != nil {
		return Device{}, err
	}
	if d.Ifindex == 0 {
		return Device{}, fmt.Errorf("dev reply without ifindex (%d bytes)", len(data))
	}
	return d, nil
}
