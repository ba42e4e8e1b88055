package main

import (
	"encoding/binary"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/doctor"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// otherServer is the address of somebody who answers whatever is asked with the same bytes, and hangs up.
func otherServer(t *testing.T, answer []byte) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer func() { _ = c.Close() }()
				if _, err := c.Read(make([]byte, 4096)); err == nil {
					_, _ = c.Write(answer) // who has hung up needs none
				}
			})
		}
	})
	t.Cleanup(all.Wait)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// refusal is how PostgreSQL answers a wrong password.
func refusal() []byte {
	body := "SFATAL\x00VFATAL\x00C28P01\x00Mpassword authentication failed for user \"weir\"\x00\x00"
	return append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(4+len(body))), body...)
}

// mistake is one thing that somebody has set wrongly, and the line of weir doctor that finds it.
type mistake struct {
	name        string
	makes       func(t *testing.T, b *bed, redis *miniredis.Miniredis)
	check, text string // all of which fail
	remedy      string
	also        []string // checks that fail with it
}

// configurationMistakes are those of an installation whose topic of keyed events has that name.
func configurationMistakes(keyed string) []mistake {
	set := func(pair string) func(*testing.T, *bed, *miniredis.Miniredis) {
		return func(_ *testing.T, b *bed, _ *miniredis.Miniredis) { b.flags = append(b.flags, "--set", pair) }
	}
	at := func(flag, before, after string, answer []byte) func(*testing.T, *bed, *miniredis.Miniredis) {
		return func(t *testing.T, b *bed, _ *miniredis.Miniredis) { b.set(flag, before+otherServer(t, answer)+after) }
	}
	web := []byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
	return []mistake{
		{"Redis's password is missing", func(t *testing.T, b *bed, _ *miniredis.Miniredis) {
			closed := testbed.EmbeddedRedis(t)
			closed.RequireAuth("hunter2")
			b.set("--redis-url", "redis://"+closed.Addr()+"/0")
		}, "redis", "NOAUTH", "redis.url", nil},
		{"Redis's password is wrong", func(t *testing.T, b *bed, _ *miniredis.Miniredis) {
			closed := testbed.EmbeddedRedis(t)
			closed.RequireAuth("the right one")
			b.set("--redis-url", "redis://:hunter2@"+closed.Addr()+"/0")
		}, "redis", "WRONGPASS", "redis.url", nil},
		{"PostgreSQL's password is wrong", at("--postgres-url", "postgres://weir:hunter2@", "/weir?sslmode=disable",
			refusal()),
			"postgres", "password authentication failed", "password", nil},
		{"Kafka's port is Redis's", func(_ *testing.T, b *bed, redis *miniredis.Miniredis) {
			b.set("--kafka-brokers",
				redis.Addr())
		},
			"kafka", "does not answer", "correct the broker addresses", nil},
		{"Redis's port is a web server's", at("--redis-url", "redis://", "/0", web), "redis", "127.0.0.1:",
			"redis.url", nil},
		{"Redis's port is Kafka's", func(_ *testing.T, b *bed, _ *miniredis.Miniredis) {
			first, _, _ := strings.Cut(b.flag("--kafka-brokers"), ",")
			b.set("--redis-url", "redis://"+first+"/0")
		}, "redis", "127.0.0.1:", "redis.url", nil},
		{"another database of Redis", func(_ *testing.T, b *bed, redis *miniredis.Miniredis) {
			b.set("--redis-url", "redis://"+redis.Addr()+"/5")
		}, "redis namespace", "database 5", "redis.url", nil},
		{"a Redis of another installation", func(t *testing.T, b *bed, redis *miniredis.Miniredis) {
			b.set("--redis-url", "redis://"+redis.Addr()+"/6")
			ownedBy(t, "redis://"+redis.Addr()+"/6", b.flag("--namespace"), "staging")
			if o := b.weir("blocks", "list"); o.code != exitOK ||
				!strings.Contains(o.stderr, `Redis belongs to installation "staging"`) {
				t.Errorf("weir blocks list says of it: %+v", o)
			}
		}, "redis namespace", "belongs to installation \"staging\" (since ", "--take-redis", nil},
		{"other partitions", set("kafka.partitions.keyed=16"), "stream live", "the configuration says 16 keyed ones",
			"correct kafka.partitions.keyed", []string{"topic " + keyed}},
	}
}

// ownedBy makes a namespace in Redis that of an installation.
func ownedBy(t *testing.T, url, namespace, installation string) {
	t.Helper()
	store, err := blocklist.Connect(blocklist.Server{URL: url}, namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if err := blocklist.NewOwnership(store).Take(t.Context(),
		blocklist.Owner{Installation: installation, Since: traffic.At(time.Now()),
			By: "weir migrate on another host"}); err != nil {
		t.Fatal(err)
	}
}

// What somebody gets wrong while the installation works is one failing line, beside those that it makes fail, and the
// password is in none.
func TestDoctorFindsMistakesOfConfiguration(t *testing.T) {
	t.Parallel()
	redis := testbed.EmbeddedRedis(t)
	sound := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + redis.Addr() + "/0"})
	sound.ok("migrate")
	stages := sound.start("run")
	sound.doctorSays("redis namespace", doctor.OK, "the stage enforce has been there")
	for _, tc := range configurationMistakes(sound.names().Keyed) {
		t.Run(tc.name, func(t *testing.T) {
			b := &bed{t: t, flags: slices.Clone(sound.flags)}
			tc.makes(t, b, redis)
			found, _ := b.doctor()
			wantFinding(t, found, tc.check, doctor.Fail, tc.text, tc.remedy)
			for check, f := range found {
				if f.Status == doctor.Fail && check != tc.check && !slices.Contains(tc.also, check) {
					t.Errorf("%s fails, too: %s", check, f.Found)
				}
				if strings.Contains(f.Found+f.Remedy, "hunter2") {
					t.Errorf("%s tells the password: %s", check, f.Found)
				}
			}
		})
	}
	stages.end()
}

// A field that does not exist is named with its place before any server is asked.
func TestDoctorNamesAFieldThatDoesNotExist(t *testing.T) {
	b := &bed{t: t}
	for text, want := range map[string][]string{
		"redis:\n  ulr: redis://127.0.0.1:1/0\n":          {"weir.yaml:2", "ulr", "url"},
		"identity:\n  ip:\n    trusted_proxy: 10.0.0.0/8": {"weir.yaml:3", "trusted_proxy", "trusted_proxies"},
	} {
		o := b.weir("doctor", "--config", writeFile(t, "weir.yaml", text))
		for _, part := range want {
			if o.code != exitUsage || !strings.Contains(o.stderr, part) {
				t.Errorf("exit code %d, no %s in %s", o.code, part, o.stderr)
			}
		}
	}
}
