package bpf

// The compiler's own name for the target is pinned, and so are all flags that
// change code. Generating again with clang 14 gives the same bytes. What they
// were made of is written down last, for those who have another compiler or none.
//
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -mcpu=v3 -Wall -Werror" -type histogram -type napi_state -type thread_state -type napi_counts -type napi_delays -type cpu_state -type device_clock -type app_waits Receive receive.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -mcpu=v3 -Wall -Werror -DRAW_TRACEPOINTS" -no-global-types ReceiveRaw receive.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -mcpu=v3 -Wall -Werror -DEVENTS" -no-global-types -type poll_event -type wait_event -type request_event ReceiveEvents receive.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -mcpu=v3 -Wall -Werror -DEVENTS -DRAW_TRACEPOINTS" -no-global-types ReceiveEventsRaw receive.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -mcpu=v3 -Wall -Werror" -type context_entry Contexts contexts.bpf.c
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -target bpfel -cc clang -strip llvm-strip -cflags "-O2 -mcpu=v3 -Wall -Werror" Selftest selftest.bpf.c
//go:generate sh -c "LC_ALL=C; sha256sum gen.go *.h *.c *_bpfel.go *_bpfel.o >generated.sha256"
