package simulation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// worthSharing is from how many seeds on they are shared out: a process of its own costs some tenths of a second.
const worthSharing = 1000

// shard is a process of this test program that runs some of the seeds. One process uses one core only, see alone.
type shard struct {
	first   uint64
	count   int
	cmd     *exec.Cmd
	said    string // file
	account string // file
}

// share starts processes for the later ones of n seeds, one for each core but this process's own.
func share(t *testing.T, n int) []shard {
	t.Helper()
	cores := runtime.NumCPU()
	if n < worthSharing || cores < 2 || raceDetector {
		return nil
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var all []shard
	for i := 1; i < cores; i++ {
		from, to := n*i/cores, n*(i+1)/cores
		s := shard{first: *firstSeed + uint64(from), count: to - from}
		s.said, s.account = filepath.Join(dir, fmt.Sprint("said", i)), filepath.Join(dir, fmt.Sprint("account", i))
		out, err := os.Create(s.said)
		if err != nil {
			t.Fatal(err)
		}
		s.cmd = exec.Command(program, "-test.run=^TestSimulation$", "-test.timeout=0", fmt.Sprint("-simulation.seeds=", s.count),
			fmt.Sprint("-simulation.first=", s.first), "-simulation.account="+s.account)
		s.cmd.Stdout, s.cmd.Stderr = out, out
		s.cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
		err = s.cmd.Start()
		_ = out.Close() // the process has its own
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if s.cmd.ProcessState == nil {
				_ = s.cmd.Process.Kill()
				_ = s.cmd.Wait()
			}
		})
		all = append(all, s)
	}
	return all
}

// wait gives what the process's runs held.
func (s *shard) wait(t *testing.T) *seen {
	t.Helper()
	start := time.Now()
	err := s.cmd.Wait()
	said, readErr := os.ReadFile(s.said)
	if err != nil || readErr != nil {
		t.Fatalf("seeds %d to %d: %v %v\n%s", s.first, s.first+uint64(s.count)-1, err, readErr, said)
	}
	o, err := readSeen(s.account)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d seeds from %d on by a process of their own, waited for %v", s.count, s.first, time.Since(start).Round(time.Second))
	return o
}
