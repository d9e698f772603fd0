package actuate

import (
	"context"
	"errors"
	"fmt"

	"autotune/model"

	"golang.org/x/sys/unix"
)

// ReceiveClocks returns the clocks that stamp received packets now: N of
// /dev/ptpN by interface index, of the selected devices that do. It changes
// nothing. What fails on one device is in the error, beside the others.
func (h *Host) ReceiveClocks(ctx context.Context) (map[int]int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	clocks := make(map[int]int)
	var errs []error
	for _, d := range h.devices {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if h.everyLink && !h.tracks(d) {
			continue
		}
		stamping, err := h.kernel.Stamping(d.link)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if stamping.On() {
			clocks[d.link.Index] = stamping.Clock
		}
	}
	return clocks, errors.Join(errs...)
}

// openStamping opens a socket to ask devices of this thread's namespace.
func openStamping() (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open a socket for interface requests: %w", err)
	}
	return fd, nil
}

// Stamping implements [Kernel]. What the device can do is from ETHTOOL_GET_TS_INFO,
// what it is told to do from SIOCGHWTSTAMP, which older drivers do not answer.
func (k *liveKernel) Stamping(link Link) (*model.Stamping, error) {
	return askStamping(k.requests, link.Name)
}

// askStamping asks by a socket in the device's namespace.
func askStamping(socket int, ifname string) (*model.Stamping, error) {
	info, err := unix.IoctlGetEthtoolTsInfo(socket, ifname)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, nil
	case errors.Is(err, unix.ENODEV):
		return nil, fmt.Errorf("ask %s for its time stamps: %w: %w", ifname, model.ErrGone, err)
	case err != nil:
		return nil, fmt.Errorf("ask %s for its time stamps: %w", ifname, err)
	}
	stamping := stampingOf(info)
	if stamping == nil {
		return nil, nil
	}
	if config, err := unix.IoctlGetHwTstamp(socket, ifname); err == nil {
		filter := filterName(config.Rx_filter)
		stamping.Filter = &filter
	}
	return stamping, nil
}

// stampingOf returns what a device can do; nil where it does not stamp what it
// receives, or has no clock.
func stampingOf(info *unix.EthtoolTsInfo) *model.Stamping {
	if info.Phc_index < 0 || info.So_timestamping&unix.SOF_TIMESTAMPING_RX_HARDWARE == 0 {
		return nil
	}
	return &model.Stamping{
		Clock: int(info.Phc_index),
		All:   info.Rx_filters&(1<<unix.HWTSTAMP_FILTER_ALL) != 0,
	}
}

// filterName returns what ethtool -T calls a filter.
func filterName(filter int32) string {
	names := [...]string{
		unix.HWTSTAMP_FILTER_NONE:                model.StampNone,
		unix.HWTSTAMP_FILTER_ALL:                 "all",
		unix.HWTSTAMP_FILTER_SOME:                "some",
		unix.HWTSTAMP_FILTER_PTP_V1_L4_EVENT:     "ptpv1-l4-event",
		unix.HWTSTAMP_FILTER_PTP_V1_L4_SYNC:      "ptpv1-l4-sync",
		unix.HWTSTAMP_FILTER_PTP_V1_L4_DELAY_REQ: "ptpv1-l4-delay-req",
		unix.HWTSTAMP_FILTER_PTP_V2_L4_EVENT:     "ptpv2-l4-event",
		unix.HWTSTAMP_FILTER_PTP_V2_L4_SYNC:      "ptpv2-l4-sync",
		unix.HWTSTAMP_FILTER_PTP_V2_L4_DELAY_REQ: "ptpv2-l4-delay-req",
		unix.HWTSTAMP_FILTER_PTP_V2_L2_EVENT:     "ptpv2-l2-event",
		unix.HWTSTAMP_FILTER_PTP_V2_L2_SYNC:      "ptpv2-l2-sync",
		unix.HWTSTAMP_FILTER_PTP_V2_L2_DELAY_REQ: "ptpv2-l2-delay-req",
		unix.HWTSTAMP_FILTER_PTP_V2_EVENT:        "ptpv2-event",
		unix.HWTSTAMP_FILTER_PTP_V2_SYNC:         "ptpv2-sync",
		unix.HWTSTAMP_FILTER_PTP_V2_DELAY_REQ:    "ptpv2-delay-req",
		unix.HWTSTAMP_FILTER_NTP_ALL:             "ntp-all",
	}
	if filter < 0 || int(filter) >= len(names) {
		return fmt.Sprintf("filter %d", filter)
	}
	return names[filter]
}
