package probe

import "testing"

func TestParseCgroup(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"unified":                           {"0::/user.slice/app.service\n", "/user.slice/app.service"},
		"hybrid, at the unified root":       {"9:name=systemd:/s\n4:memory:/api/1\n1:cpu,cpuacct:/c\n0::/\n", "/c"},
		"hybrid, without a CPU group":       {"9:name=systemd:/s\n4:memory:/api/1\n1:cpu:/\n0::/\n", "/s"},
		"hybrid, only another controller's": {"9:name=systemd:/\n4:memory:/api/1\n1:cpu:/\n0::/\n", "/api/1"},
		"at every root":                     {"9:name=systemd:/\n0::/\n", "/"},
		"a path with colons":                {"0::/a:b\n", "/a:b"},
		"cpuset is not cpu":                 {"2:cpuset:/x\n1:cpu:/y\n", "/y"},
		"nothing":                           {"", ""},
		"no lines of the form":              {"x\n1:2\n", ""},
	} {
		if got := parseCgroup(tt.text); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func FuzzParseCgroup(f *testing.F) {
	f.Add("4:memory:/api/1\n0::/\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got := parseCgroup(text); len(got) > len(text) {
			t.Errorf("%q from %q", got, text)
		}
	})
}
