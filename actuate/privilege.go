package actuate

import (
	"fmt"

	"autotune/model"

	"golang.org/x/sys/unix"
)

// Privilege returns why this process may not set NAPI instances: nil, or an
// error that wraps [model.ErrReadOnly]. napi-set asks for CAP_NET_ADMIN in the
// user namespace that owns the network namespace (GENL_UNS_ADMIN_PERM in
// Documentation/netlink/specs/netdev.yaml).
func (h *Host) Privilege() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the process's capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return fmt.Errorf("CAP_NET_ADMIN is missing, run as root: %w", model.ErrReadOnly)
	}
	return nil
}
