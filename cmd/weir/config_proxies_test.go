package main

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// TestTrustedProxiesFromEveryPlace: a list or a number, in a file, a variable or a flag, and config show gives both back.
func TestTrustedProxiesFromEveryPlace(t *testing.T) {
	file := func(value string) configSource {
		return configSource{readFile: files(map[string]string{"weir.yaml": "identity:\n  ip:\n    trusted_proxies: " + value + "\n"})}
	}
	flag := func(value string) configSource {
		return configSource{readFile: files(nil), settings: []setting{{"identity.ip.trusted_proxies", value, "--set"}}}
	}
	variable := func(value string) configSource {
		return configSource{readFile: files(nil), environ: []string{"WEIR_IDENTITY_IP_TRUSTED_PROXIES=" + value}}
	}
	for _, c := range []struct {
		src  configSource
		want string
	}{
		{file("2"), "2"}, {file("[]"), "0"}, {file(""), "0"}, {file("10.0.0.0/8"), "10.0.0.0/8"},
		{file("[10.0.0.0/8, 192.0.2.7]"), "10.0.0.0/8,192.0.2.7/32"}, {file("\n    - 10.0.0.0/8\n    - \"2001:db8::/32\""), "10.0.0.0/8,2001:db8::/32"},
		{flag("3"), "3"}, {flag("10.0.0.0/8,192.0.2.7"), "10.0.0.0/8,192.0.2.7/32"}, {variable("1"), "1"}, {variable("192.0.2.7, 10.1.2.3/8"), "192.0.2.7/32,10.0.0.0/8"},
	} {
		conf, err := loadConfig(c.src)
		if err != nil {
			t.Errorf("%s: %v", c.want, err)
			continue
		}
		shown := ""
		for _, f := range conf.fields() {
			if f.path == "identity.ip.trusted_proxies" {
				shown = f.text()
			}
		}
		if shown != c.want {
			t.Errorf("got %s, want %s", shown, c.want)
		}
	}
	for value, want := range map[string]string{
		"33": "weir.yaml:3: identity.ip.trusted_proxies: got 33; allowed: a list of prefixes", "[10.0.0.0/8, 2]": `got "2"; allowed`,
		"[0.0.0.0/0]": "everybody", "{a: b}": "got a mapping", "[[10.0.0.0/8]]": "element 1: got a list", "edge": `got "edge"; allowed`,
	} {
		if _, err := loadConfig(file(value)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", value, err, want)
		}
	}
	if _, err := loadConfig(variable("-1")); err == nil || !strings.Contains(err.Error(), "WEIR_IDENTITY_IP_TRUSTED_PROXIES: got -1") {
		t.Errorf("a variable: %v", err)
	}
}

// TestDoctorWarnsOfCountedProxies: where proxies are counted, who comes past them is whoever it claims to be.
func TestDoctorWarnsOfCountedProxies(t *testing.T) {
	for value, want := range map[string]status{"0": statusOK, "1": statusWarn, "10.0.0.0/8": statusOK} {
		e := examined(t, rules.ModeShadow)
		if err := e.routing.Identity.IP.TrustedProxies.UnmarshalText([]byte(value)); err != nil {
			t.Fatal(err)
		}
		found := e.lookAtIdentities(t.Context())
		f := found[len(found)-1]
		if f.Check != "trusted proxies" || f.Status != want || (want == statusWarn) != strings.Contains(f.Mend, "identity.ip.trusted_proxies: [") {
			t.Errorf("%s: %+v", value, f)
		}
	}
}

// TestDoctorTellsOfClaimedMembers: a field that nothing but a client's claim is left for says so.
func TestDoctorTellsOfClaimedMembers(t *testing.T) {
	e := examined(t, rules.ModeShadow)
	e.routing.RecordFormat = rules.ReadingRecordFormat
	e.routing.Format.Name, e.routing.Identity.Device.Vouched = format.Nginx, true
	var messages []traffic.Message
	for _, line := range repeat(12, `{"remote_addr":"198.51.100.7","device":"tv","request_method":"POST","request_uri":"/v1/guest-tokens","status":"201"}`) {
		messages = append(messages, traffic.Message{Value: []byte(line), Appended: now()})
	}
	for _, f := range e.judgeSample(messages) {
		if f.Check == "identity device" && f.Status == statusFail && strings.Contains(f.Found, "claimed 12") {
			return
		}
	}
	t.Errorf("nothing of it in %+v", e.judgeSample(messages))
}
