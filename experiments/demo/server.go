package demo

import (
	"context"
	"net/netip"

	"autotune/experiments/servers"
	"autotune/experiments/workload"
)

// server is the process under load.
type server interface {
	PID() int
	Addr() netip.AddrPort
	// Done is closed when the process has ended.
	Done() <-chan struct{}
	// Stop ends the process. Where it ended before by itself, it says why.
	Stop(ctx context.Context) error
}

// ServerInfo says which server was under load.
type ServerInfo struct {
	// Name is a program's, or "built-in". It is empty in records of a time
	// when there was no other.
	Name string `json:"name"`
	// Steered tells that its epoll contexts followed the settings.
	Steered bool `json:"steered"`
	// Realtime tells that it and the NAPI's thread ran under SCHED_FIFO.
	Realtime bool `json:"realtime"`
	// GapsLogged tells that the server logs the moments in which it was not
	// run. Where it does not, only the client's exclude requests.
	GapsLogged bool `json:"gaps_logged"`
}

// BuiltIn is the name of the server of experiments/workload.
const BuiltIn = "built-in"

func serverInfo(p *servers.Program) ServerInfo {
	if p == nil {
		return ServerInfo{Name: BuiltIn, GapsLogged: true}
	}
	return ServerInfo{Name: p.Name, Steered: true, Realtime: p.Realtime}
}

// Installed tells that the server is a program as it is installed.
func (s ServerInfo) Installed() bool { return s.Name != "" && s.Name != BuiltIn }

// builtIn is the server of experiments/workload.
type builtIn struct{ *workload.Server }

// Stop implements [server].
func (b builtIn) Stop(ctx context.Context) error {
	_, err := b.Server.Stop(ctx)
	return err
}

// startServer starts the server at its end of the bed.
func (e *experiment) startServer(ctx context.Context, serverCPU, clientCPU int) (server, error) {
	if e.options.Program != nil {
		return servers.Start(ctx, e.bed, *e.options.Program, serverCPU)
	}
	config := e.options.Server
	config.Addr = netip.AddrPortFrom(e.bed.Server().Addr, 0)
	config.CPU, config.RuntimeCPU, config.Interval = serverCPU, clientCPU, e.options.Window
	s, err := workload.StartServer(ctx, workload.Launch{Command: apart(e.options.ServerCommand()), Start: e.bed.Server().Start}, config, nil)
	if err != nil {
		return nil, err
	}
	return builtIn{s}, nil
}
