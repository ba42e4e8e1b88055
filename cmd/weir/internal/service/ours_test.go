package service

import "testing"

func TestNobodyElsesNameIsOurs(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1:9464": true, "127.0.0.1": true, "[::1]:9464": true, "[::1]": true, "10.1.2.3:9464": true,
		"localhost:9464": true, "weir:9464": true, "weir-detect-1": true,
		"evil.example": false, "evil.example:9464": false, "127.0.0.1.evil.example:9464": false, "localhost.": false,
		"127.0.0.1.": false, "": false, "evil.example\x00": false, "0x7f.1": false,
	} {
		if got := ours(host); got != want {
			t.Errorf("%q: got %v", host, got)
		}
	}
}
