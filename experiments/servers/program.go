package servers

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"autotune/experiments/workload"
)

// Program is a server under test.
type Program struct {
	Name string
	// Rate is the load that it gets, in requests per second: well below what
	// one CPU of a small virtual machine serves together with its NAPI.
	Rate float64
	// Closed asks on each of Connections as soon as it is answered, whatever
	// Rate says: a server that is always busy.
	Closed      bool
	Connections int
	// Realtime has the server and its NAPI thread under SCHED_FIFO: under the
	// usual scheduling either may wait for milliseconds while something else
	// finishes its time slice, and at a low load that would be all there is to
	// measure.
	Realtime bool
	Exchange workload.Exchange
	// executable is the program's name, and debian the package that has it;
	// both are empty for this program itself.
	executable, debian string
	// command returns how to start it, listening on addr with one thread that
	// receives; dir is a directory of its own.
	command func(addr netip.AddrPort, dir string) (*exec.Cmd, error)
}

const (
	valueSize       = 64
	openConnections = 64
	// closedConnections are enough to keep a server busy, and few enough to
	// tell the time that it takes from the time that requests queue.
	closedConnections = 24
)

// phase offers the program's load.
func (p Program) phase(name string, fresh bool) workload.Phase {
	return workload.Phase{Name: name, Rate: p.Rate, Closed: p.Closed, Fresh: fresh}
}

// Programs returns the servers. Self is this program's own path, which serves
// HTTP by net/http when run as "experiment http".
func Programs(self string) []Program {
	value := strings.Repeat("x", valueSize)
	get := []byte("GET / HTTP/1.1\r\nHost: bed\r\n\r\n")
	memcached := Program{
		Name: "memcached", Rate: 25000, Connections: openConnections, Realtime: true, executable: "memcached", debian: "memcached",
		Exchange: workload.Exchange{
			Prepare: fmt.Appendf(nil, "set key 0 0 %d\r\n%s\r\n", valueSize, value),
			Request: []byte("get key\r\n"), Reply: []byte("VALUE key"),
		},
		command: func(addr netip.AddrPort, _ string) (*exec.Cmd, error) {
			// As a process that changes its user it would outlive an experiment
			// that is killed: the kernel then forgets the signal that it is to
			// get when its parent dies (PR_SET_PDEATHSIG).
			return exec.Command("memcached", "-u", "root", "-t", "1", "-c", "1024", "-U", "0",
				"-l", addr.Addr().String(), "-p", fmt.Sprint(addr.Port())), nil
		},
	}
	// Twenty small values are asked for at once, as by a page that is put
	// together from a cache.
	busy := memcached
	busy.Name, busy.Rate, busy.Closed, busy.Connections, busy.Realtime = "memcached-busy", 0, true, closedConnections, false
	busy.Exchange = workload.Exchange{
		Prepare: []byte("set key 0 0 8\r\n12345678\r\n"),
		Request: []byte("get" + strings.Repeat(" key", 20) + "\r\n"), Reply: []byte("VALUE key"),
	}
	undisturbed := busy
	undisturbed.Name, undisturbed.Realtime = "memcached-busy-fifo", true
	return []Program{
		memcached,
		busy,
		undisturbed,
		{
			Name: "redis", Rate: 25000, Connections: openConnections, Realtime: true, executable: "redis-server", debian: "redis-server",
			Exchange: workload.Exchange{
				Prepare: fmt.Appendf(nil, "SET key %s\r\n", value),
				Request: []byte("*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"), Reply: []byte("$64"),
			},
			command: func(addr netip.AddrPort, dir string) (*exec.Cmd, error) {
				return exec.Command("redis-server", "--bind", addr.Addr().String(), "--port", fmt.Sprint(addr.Port()),
					"--save", "", "--appendonly", "no", "--protected-mode", "no", "--dir", dir), nil
			},
		},
		{
			Name: "nginx", Rate: 15000, Connections: openConnections, Realtime: true, executable: "nginx", debian: "nginx-light",
			Exchange: workload.Exchange{Request: get, Reply: []byte("HTTP/1.1 200")},
			command: func(addr netip.AddrPort, dir string) (*exec.Cmd, error) {
				config := filepath.Join(dir, "nginx.conf")
				text := fmt.Sprintf(nginxConfig, dir, addr, value)
				if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
					return nil, fmt.Errorf("write the configuration of nginx: %w", err)
				}
				return exec.Command("nginx", "-c", config, "-p", dir, "-e", "stderr"), nil
			},
		},
		{
			Name: "net/http", Rate: 10000, Connections: openConnections, Realtime: true,
			Exchange: workload.Exchange{Request: get, Reply: []byte("HTTP/1.1 200")},
			command: func(addr netip.AddrPort, _ string) (*exec.Cmd, error) {
				cmd := exec.Command(self, "experiment", "http", addr.String())
				cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
				return cmd, nil
			},
		},
	}
}

// load says how much is offered.
func (p Program) load() string {
	if p.Closed {
		return fmt.Sprintf(" over %d connections", p.Connections)
	}
	return fmt.Sprintf(" at %.0f requests/s", p.Rate)
}

// nginxConfig is for one process in the foreground, which keeps connections for
// as long as the client does.
const nginxConfig = `daemon off;
master_process off;
worker_processes 1;
error_log stderr;
pid %[1]s/nginx.pid;
events { worker_connections 1024; }
http {
	access_log off;
	keepalive_requests 1000000000;
	keepalive_timeout 1h;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s;
		location / { return 200 "%[3]s"; }
	}
}
`

// Available returns why the program cannot be started here, with what to
// install; it wraps [ErrCannotRun].
func (p Program) Available() error {
	if p.executable == "" {
		return nil
	}
	if _, err := exec.LookPath(p.executable); err != nil {
		return fmt.Errorf("%w: %s is not installed (Debian: apt-get install %s)", ErrCannotRun, p.executable, p.debian)
	}
	return nil
}
