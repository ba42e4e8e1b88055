package simulation

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	json "github.com/alicebob/miniredis/v2/gopher-json"
	lua "github.com/yuin/gopher-lua"
)

// lab is what runs one world after another share because it is dear to make: the interpreter that runs the production
// scripts, and statements taken apart. Only one world uses it at a time.
type lab struct {
	state   *lua.LState
	keys    *keyspace // of the script that runs
	may     bool      // it may write when the server is full
	scripts map[string]*loaded
	set     map[string][]update
	bugs    bugs
	changed bool // a script was changed by a bug
}

// loaded is a script, and whether its flags let it write when the server is full.
type loaded struct {
	function *lua.LFunction
	always   bool
}

func newLab(b bugs) *lab {
	l := &lab{state: lua.NewState(), scripts: map[string]*loaded{}, set: map[string][]update{}, bugs: b}
	json.Preload(l.state)
	if err := l.state.DoString(`cjson = require("json")`); err != nil {
		panic(err) // the library's own text
	}
	table := l.state.NewTable()
	l.state.SetField(table, "call", l.state.NewFunction(l.call))
	l.state.SetField(table, "pcall", l.state.NewFunction(l.pcall))
	l.state.SetGlobal("redis", table)
	return l
}

func (l *lab) close() { l.state.Close() }

func (l *lab) updates(sql string) []update {
	if _, ok := l.set[sql]; !ok {
		l.set[sql] = parseUpdates(sql)
	}
	return l.set[sql]
}

// load takes a script's text and gives its SHA-1.
func (l *lab) load(text string) string {
	sum := sha1.Sum([]byte(text))
	sha := hex.EncodeToString(sum[:])
	if l.scripts[sha] == nil {
		text, changed := l.bugs.change(text)
		l.changed = l.changed || changed
		flags := ""
		if strings.HasPrefix(text, "#!") {
			flags, text, _ = strings.Cut(text, "\n")
		}
		script, err := l.state.LoadString(text)
		if err != nil {
			panic(fmt.Sprintf("script does not compile: %v", err))
		}
		l.scripts[sha] = &loaded{script, flags == "#!lua flags=allow-oom"}
	}
	return sha
}

// run calls a script; args are the number of keys, the keys, and the arguments.
func (l *lab) run(keys *keyspace, sha string, args []string) (any, error) {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return nil, err
	}
	l.keys, l.may = keys, l.scripts[sha].always || !keys.w.isFull()
	l.state.SetGlobal("KEYS", l.list(args[1:1+n]))
	l.state.SetGlobal("ARGV", l.list(args[1+n:]))
	if err := l.state.CallByParam(lua.P{Fn: l.scripts[sha].function, NRet: 1, Protect: true}); err != nil {
		return nil, err
	}
	value := l.state.Get(-1)
	l.state.Pop(1)
	if table, ok := value.(*lua.LTable); ok && table.RawGetString("err") != lua.LNil {
		return nil, errors.New(table.RawGetString("err").String())
	}
	return answer(value), nil
}

func (l *lab) list(texts []string) *lua.LTable {
	t := l.state.NewTable()
	for _, s := range texts {
		t.Append(lua.LString(s))
	}
	return t
}

// answer is a script's result as the client reads it.
func answer(v lua.LValue) any {
	switch v := v.(type) {
	case lua.LString:
		return string(v)
	case lua.LNumber:
		return int64(v)
	case *lua.LTable:
		var out []any
		v.ForEach(func(_, element lua.LValue) { out = append(out, answer(element)) })
		return out
	}
	return nil
}

// call is redis.call, for the commands that the scripts use.
func (l *lab) call(s *lua.LState) int {
	words := words(s)
	if l.refuses(words[0]) {
		s.RaiseError(outOfMemory)
	}
	s.Push(l.command(words))
	return 1
}

// pcall is redis.pcall: an error is its answer.
func (l *lab) pcall(s *lua.LState) int {
	words := words(s)
	if l.refuses(words[0]) {
		t := s.NewTable()
		s.SetField(t, "err", lua.LString(outOfMemory))
		s.Push(t)
		return 1
	}
	s.Push(l.command(words))
	return 1
}

func words(s *lua.LState) []string {
	words := make([]string, s.GetTop())
	for i := range words {
		words[i] = s.Get(i + 1).String()
	}
	return words
}

const outOfMemory = "OOM command not allowed when used memory > 'maxmemory'."

// refuses is a full server's answer to a write that needs memory, unless the script has written already.
func (l *lab) refuses(command string) bool {
	switch command {
	case "SET", "HSET", "SADD", "XADD":
		if !l.may {
			l.keys.w.seen.refusedWrites++
			return true
		}
	case "DEL", "PEXPIREAT":
		l.may = true
	}
	return false
}

func (l *lab) command(words []string) lua.LValue {
	k := l.keys
	switch words[0] {
	case "GET":
		if text, ok := k.get(words[1]); ok {
			return lua.LString(text)
		}
		return lua.LFalse
	case "SET":
		expires := int64(0)
		if len(words) > 4 && words[3] == "PXAT" {
			ms, err := strconv.ParseInt(words[4], 10, 64)
			if err != nil {
				k.w.say("PXAT %s", words[4])
			}
			expires = ms
		}
		k.set(words[1], words[2], expires)
		return lua.LString("OK")
	case "DEL":
		k.del(words[1])
		return lua.LNumber(1)
	case "PEXPIREAT":
		return lua.LNumber(1) // of a key that is set next
	case "SADD":
		return lua.LNumber(k.add(words[1], words[2]))
	case "SISMEMBER":
		if k.sets[words[1]][words[2]] {
			return lua.LNumber(1)
		}
		return lua.LNumber(0)
	case "HGET":
		if text, ok := k.hashes[words[1]][words[2]]; ok {
			return lua.LString(text)
		}
		return lua.LFalse
	case "HSET":
		if k.hashes[words[1]] == nil {
			k.hashes[words[1]] = map[string]string{}
		}
		k.hashes[words[1]][words[2]] = words[3]
		return lua.LNumber(1)
	case "XREVRANGE":
		t := l.state.NewTable()
		if x := k.stream(words[1]); len(x.entries) > 0 {
			t.Append(l.list([]string{x.entries[len(x.entries)-1].ID}))
		}
		return t
	case "XADD":
		k.append(words[1], words[5], words[6:]) // MAXLEN ~ n id
		return lua.LString(words[5])
	case "XTRIM":
		k.stream(words[1]).trimBelow(words[4]) // MINID ~ id
		return lua.LNumber(0)
	case "PEXPIRE":
		ms, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			k.w.say("PEXPIRE %s", words[2])
		}
		k.stream(words[1]).expires = now().Add(time.Duration(ms) * time.Millisecond)
		return lua.LNumber(1)
	}
	l.state.RaiseError("the simulated redis does not know %v", words)
	return lua.LNil
}
