package model

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSuspensionNeedsOnePreferredUnmixedContext(t *testing.T) {
	app := func(selected bool, contexts ...EpollContext) []AppSample {
		return []AppSample{{PID: 7, Comm: "memcached", Selected: selected, Contexts: contexts}}
	}
	alone := EpollContext{FD: 4, NAPIIDs: []uint32{9}}
	preferred := EpollContext{FD: 4, Prefer: true, NAPIIDs: []uint32{9}}
	mixed := EpollContext{FD: 5, Prefer: true, NAPIIDs: []uint32{9, 10}}
	mixedWhy := "epoll context 5 of memcached (pid 7) mixes sockets of NAPIs [9 10], and the others would stall"
	for name, c := range map[string]struct {
		apps []AppSample
		id   uint32
		want Readiness
	}{
		"not observed":                    {nil, 9, Readiness{Why: "applications were not observed"}},
		"no NAPI ID":                      {app(false, preferred), 0, Readiness{Why: "the NAPI ID of the queue is not known"}},
		"no application":                  {[]AppSample{}, 9, Readiness{Why: "no application was seen to prefer busy polling on NAPI 9"}},
		"elsewhere":                       {app(false, preferred), 10, Readiness{Why: "no application was seen to prefer busy polling on NAPI 10"}},
		"not preferred":                   {app(false, alone), 9, Readiness{Why: "no application was seen to prefer busy polling on NAPI 9; memcached (pid 7) receives there without"}},
		"preferred":                       {app(false, preferred), 9, Readiness{Ready: true}},
		"to be preferred":                 {app(true, alone), 9, Readiness{Ready: true, Steered: true}},
		"mixed":                           {app(false, mixed), 10, Readiness{Why: mixedWhy}},
		"one mixed forbids it for all":    {app(false, preferred, mixed), 9, Readiness{Why: mixedWhy}},
		"perhaps mixed":                   {app(false, EpollContext{FD: 6, Prefer: true, NAPIIDs: []uint32{9}, MoreNAPIs: true}), 9, Readiness{Why: "epoll context 6 of memcached (pid 7) may mix sockets of several NAPIs: more contexts watch one of its process than can be listed"}},
		"perhaps mixed, not seen there":   {app(false, preferred, EpollContext{FD: 6, Prefer: true, MoreNAPIs: true}), 9, Readiness{Why: "epoll context 6 of memcached (pid 7) may mix sockets of several NAPIs: more contexts watch one of its process than can be listed"}},
		"mixed but neither preferred nor": {app(false, preferred, EpollContext{FD: 6, NAPIIDs: []uint32{9, 10}}), 9, Readiness{Ready: true}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, SuspensionReadiness(c.apps, c.id)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
