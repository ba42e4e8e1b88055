package faults

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/testbed"
)

// killOften kills one of two processes at random instants, and starts it anew as a supervisor would.
func (s *scene) killOften(processes []*process) {
	for range s.form.kills {
		s.pause(3 * time.Second)
		s.awaitShares(processes) // on a busy machine one may have lost them meanwhile
		victim := processes[s.rnd.IntN(len(processes))]
		victim.kill()
		at := s.harmed()
		s.pause(500 * time.Millisecond)
		victim.again()
		s.works(at)
		s.awaitShares(processes)
	}
}

// killShortly kills one of two named processes at random instants; its supervisor has it back within a second.
func (s *scene) killShortly(processes []*process) {
	for range s.form.kills {
		s.pause(3 * time.Second)
		s.awaitShares(processes)
		victim := processes[s.rnd.IntN(len(processes))]
		victim.kill()
		at := s.harmed()
		s.pause(time.Second)
		p := &parts{at: at, again: time.Now()}
		victim.again()
		s.works(at)
		s.awaitShares(processes)
		if err := p.read(victim.said()); err != nil {
			s.Fatal(err)
		}
		s.parts = append(s.parts, p)
	}
}

// replace freezes a named process and starts another one under its name, as a scheduler does when a machine is lost, which then comes
// back: it must find out that its place is another's, and does what there is for it as a member without a name.
func (s *scene) replace(zombie *process) {
	s.pause(3 * time.Second)
	watch, begun := testbed.StartStopwatch(), time.Now()
	defer watch.Stop()
	zombie.freeze()
	at := s.harmed()
	next := s.in.startAs(zombie.stage, zombie.name)
	s.works(at)
	s.pause(2 * time.Second)
	zombie.revive()
	s.works(s.harmed())
	testbed.Eventually(s, workTimeout, func() error {
		const fenced = "another process has joined with this one's instance id"
		// Where all stood still for so long that both have lost their places, after 10 s, the name is that of the one who comes back last.
		both := time.Since(begun)-watch.Since(begun) > 5*time.Second && strings.Contains(next.said(), fenced)
		if !both && !strings.Contains(zombie.said(), fenced) {
			return fmt.Errorf("the %s process has not heard that %s is another one's name now", zombie.stage, zombie.name)
		}
		return nil
	})
}

func (s *scene) awaitShares(processes []*process) {
	s.Helper()
	partitions := s.stream.Keyed
	if processes[0].stage == "route" {
		partitions = s.stream.Requests
	}
	awaitShares(s, partitions, processes)
}

// freezeOften stops an owner until the group has given all that it had to another, which works on it, and lets it go on
// with what it had in hand: it must find out that nothing of that is its own any more.
func (s *scene) freezeOften(processes []*process) {
	for n := range s.form.freezes {
		s.pause(3 * time.Second)
		s.awaitShares(processes) // as above
		zombie := processes[n%len(processes)]
		zombie.freeze()
		s.works(s.harmed()) // so others have routed, or detected, what was its own: the session timeout is over
		if zombie.stage == "detect" {
			s.ownedByOthers(zombie)
		}
		s.pause(2 * time.Second)
		zombie.revive()
		s.works(s.harmed())
		s.awaitShares(processes)
	}
}

// ownedByOthers holds that a frozen detector owns no keyed partition any more: whatever it does after it is revived, it does
// as a zombie.
func (s *scene) ownedByOthers(zombie *process) {
	s.Helper()
	testbed.Eventually(s, workTimeout, func() error {
		owned := 0
		err := s.stream.Query(s.Context(), `SELECT count(*) FROM {ns}.partition_owners WHERE owner LIKE '%-`+fmt.Sprint(zombie.pid())+`-%'`,
			func(rows pgx.Rows) error { return rows.Scan(&owned) })
		if err == nil && owned > 0 {
			err = fmt.Errorf("%d keyed partitions are the frozen detector's", owned)
		}
		return err
	})
}
