package probe

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// epollReturnsLost is what is missing where epoll returns cannot be counted.
const epollReturnsLost = "events per epoll_wait, its empty returns and its full ones; " +
	"who receives, who busy polls and what the contexts are set to is known without"

// openTracefs returns a tracefs that belongs to this process alone: mounted
// nowhere, so that it neither needs a mount point nor shows to others. The
// caller closes the returned directory.
func openTracefs() (*os.File, error) {
	fsfd, err := unix.Fsopen("tracefs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("open tracefs: %w", err)
	}
	defer unix.Close(fsfd)
	if err := unix.FsconfigCreate(fsfd); err != nil {
		return nil, fmt.Errorf("create tracefs: %w", err)
	}
	fd, err := unix.Fsmount(fsfd, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("mount tracefs: %w", err)
	}
	return os.NewFile(uintptr(fd), "tracefs"), nil
}

// tracepointID returns the perf event ID of a tracepoint; the error wraps
// fs.ErrNotExist where the kernel has none of that name.
func tracepointID(tracefs *os.File, group, name string) (uint64, error) {
	file := path.Join("events", group, name, "id")
	fd, err := unix.Openat(int(tracefs.Fd()), file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", file, err)
	}
	defer unix.Close(fd)
	buf := make([]byte, 32)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	id, err := strconv.ParseUint(strings.TrimSpace(string(buf[:n])), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	return id, nil
}

// perfTracepoint is a program attached to a tracepoint through a perf event.
type perfTracepoint struct{ fd int }

func (p perfTracepoint) Close() error { return unix.Close(p.fd) }

// attachPerfTracepoint attaches the program to the tracepoint on all CPUs: the
// kernel runs the programs of a tracepoint event wherever it fires.
func attachPerfTracepoint(id uint64, programFD int) (perfTracepoint, error) {
	attr := unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_TRACEPOINT,
		Config:      id,
		Sample_type: unix.PERF_SAMPLE_RAW,
		Sample:      1,
		Wakeup:      1,
	}
	fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return perfTracepoint{}, fmt.Errorf("open perf event: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, programFD); err != nil {
		return perfTracepoint{}, errors.Join(fmt.Errorf("attach program to perf event: %w", err), unix.Close(fd))
	}
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
		return perfTracepoint{}, errors.Join(fmt.Errorf("enable perf event: %w", err), unix.Close(fd))
	}
	return perfTracepoint{fd}, nil
}

// attachEpollReturns attaches to the exits of every epoll_wait variant that
// the architecture has; arm64 lacks the oldest.
func attachEpollReturns(l *loader) ([]attached, error) {
	tracefs, err := openTracefs()
	if err != nil {
		return nil, err
	}
	defer tracefs.Close()
	var done []attached
	for _, name := range []string{"epoll_wait", "epoll_pwait", "epoll_pwait2"} {
		id, err := tracepointID(tracefs, "syscalls", "sys_exit_"+name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, errors.Join(err, closeAll(done))
		}
		program, err := l.load(l.direct, name)
		if err != nil {
			return nil, errors.Join(err, closeAll(done))
		}
		event, err := attachPerfTracepoint(id, program.FD())
		if err != nil {
			return nil, errors.Join(fmt.Errorf("attach %s: %w", name, err), program.Close(), closeAll(done))
		}
		done = append(done, attached{name: name, program: program, link: event})
	}
	if len(done) == 0 {
		return nil, fmt.Errorf("system call tracepoints: %w", fs.ErrNotExist)
	}
	return done, nil
}
