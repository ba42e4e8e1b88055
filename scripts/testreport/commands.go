package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// commandsOf splits the command line at each "--".
func commandsOf(arguments []string) (commands [][]string) {
	var command []string
	for _, argument := range append(arguments, "--") {
		if argument != "--" {
			command = append(command, argument)
			continue
		}
		if len(command) > 0 {
			commands = append(commands, command)
		}
		command = nil
	}
	return commands
}

// followCommands runs the commands side by side and follows their events to their ends. A command that fails without an
// event that says why is an error.
func followCommands(ctx context.Context, commands [][]string, kept string, out io.Writer) (results, error) {
	if len(commands) == 0 {
		return results{}, errors.New("no command to run, which would stand behind --")
	}
	f := newFollower(out, kept)
	failed := make([]error, len(commands))
	var wait sync.WaitGroup
	for i, command := range commands {
		wait.Go(func() { failed[i] = f.command(ctx, command) })
	}
	wait.Wait()
	if err := errors.Join(failed...); err != nil && (!f.results.broken() || ctx.Err() != nil) {
		return results{}, err
	}
	return f.results, nil
}

// command follows the events of one command. When ctx ends it is told to stop as by Ctrl-C, and waited for.
func (f *follower) command(ctx context.Context, command []string) error {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGINT) }
	c.Stderr = os.Stderr
	events, err := c.StdoutPipe()
	if err != nil {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	err = f.events(events)
	if waited := c.Wait(); err == nil && waited != nil {
		err = fmt.Errorf("%s: %w", strings.Join(command[:min(len(command), 4)], " "), waited)
	}
	return err
}

// events follows one stream of events to its end.
func (f *follower) events(in io.Reader) error {
	reader := bufio.NewReader(in)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 0 {
			f.line(line)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("events of go test: %w", err)
		}
	}
}

// binary is where scripts/keep-binary.sh leaves the program of a package's tests. internal/arch sees to it that no two
// packages share a name.
func binary(kept, pkg string) string { return filepath.Join(kept, path.Base(pkg)+".test") }

// rerunKept runs a test by the program that it failed in, in its package's folder, with nothing beside it.
func rerunKept(ctx context.Context, kept string) func(pkg, test string) (results, error) {
	return func(pkg, test string) (results, error) {
		dir, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", pkg).Output()
		if err != nil {
			return results{}, fmt.Errorf("folder of %s: %w", pkg, err)
		}
		program, err := filepath.Abs(binary(kept, pkg))
		if err != nil {
			return results{}, err
		}
		c := exec.CommandContext(ctx, "go", "tool", "test2json", "-p", pkg, program, "-test.v=test2json", "-test.paniconexit0",
			"-test.timeout=10m", "-test.run=^"+test+"$")
		c.Dir = strings.TrimSpace(string(dir))
		return followOnce(c, pkg, test)
	}
}

// rerunBy runs a test by a command that knows the flag -run and the paths of packages, and writes events.
func rerunBy(ctx context.Context, command []string) func(pkg, test string) (results, error) {
	return func(pkg, test string) (results, error) {
		arguments := append(slices.Clone(command[1:]), "-run", "^"+test+"$", pkg)
		return followOnce(exec.CommandContext(ctx, command[0], arguments...), pkg, test)
	}
}

// followOnce is what a command makes of a test. That it fails is in its events.
func followOnce(c *exec.Cmd, pkg, test string) (results, error) {
	c.Stderr = os.Stderr
	events, err := c.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return results{}, fmt.Errorf("%s of %s once more: %w", test, pkg, err)
	}
	f := newFollower(io.Discard, "")
	err = f.read(events)
	return f.results, err
}
