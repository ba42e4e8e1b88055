package blocklist

// Each script touches the keys of one slot, and each is idempotent: the client may send it twice after a lost answer.

// luaAlways is the first line of scripts that may write when Redis is at maxmemory: those that end blocks, and those that gates
// must be told by. Scripts that make blocks lack it. The growth by the former is bounded by the number of releases and mode
// changes, or by the trimming of streams.
const luaAlways = "#!lua flags=allow-oom\n"

// luaFull takes the answer of the first write of a script without luaAlways. It is nil when the write was done.
//
// Redis refuses a first write that needs memory when it is full, and none after a write that needs none: a script that
// replaces what stands there does one of those first, and is not refused.
const luaFull = `
local function refusal(answer)
  if type(answer) ~= 'table' or not answer.err then return nil end
  if string.find(answer.err, 'OOM', 1, true) then return 'full' end
  return answer
end
`

// luaRead reads a JSON value of format 1: nil when the key is absent, false when it holds anything else. Such a key is
// left as it is: a newer weir, or somebody else, wrote it.
const luaRead = `
local function read(key, time)
  local text = redis.pcall('GET', key)
  if type(text) == 'table' then return false end
  if not text then return nil end
  local ok, value = pcall(cjson.decode, text)
  if ok and type(value) == 'table' and value.v == 1 and type(value[time]) == 'string' then return value end
  return false
end
`

// luaRaise writes or raises one block.
//
//	KEYS  1 block, 2 tombstone
//	ARGV  1 value of a new block, 2 value of an extended one, 3 until, 4 until in ms, 5 generation, 6 hit, 7 since,
//	      8 "extend" to raise an existing block only
//
// It answers with an outcome. "same" tells that the block stands as asked, set by the same hit: whoever asks again after a
// crash cannot know whether the delta and the decision went out, so it repeats them.
const luaRaise = luaRead + luaFull + `
local tombstone = read(KEYS[2], 'released')
if tombstone == false then return 'unreadable' end
if tombstone and (tombstone.hit == ARGV[6] or ARGV[7] <= tombstone.released) then return 'released' end
local block = read(KEYS[1], 'until')
if block == false or (block and type(block.generation) ~= 'number') then return 'unreadable' end
local generation = tonumber(ARGV[5])
local outcome, value = 'written', ARGV[1]
if block and block.generation > generation then return 'stale' end
if block and block.generation == generation then
  if block['until'] == ARGV[3] and block.hit == ARGV[6] then
    return block.extended and 'same_extended' or 'same'
  end
  if block['until'] >= ARGV[3] then return 'unchanged' end
  outcome, value = 'extended', ARGV[2]
elseif ARGV[8] == 'extend' then
  return 'absent'
end
if block then redis.call('PEXPIREAT', KEYS[1], ARGV[4]) end
return refusal(redis.pcall('SET', KEYS[1], value, 'PXAT', ARGV[4])) or outcome
`

// luaRelease puts a tombstone and removes the block.
//
//	KEYS  1 block, 2 tombstone
//	ARGV  1 tombstone value, 2 released, 3 expiry in ms, 4 "covered" to remove only a block that the tombstone covers
//
// It answers {outcome, hit of the released block or "", its until or ""}. A first release removes whatever stands there, since the log puts
// every block that came before it first; a replay finds its own tombstone and leaves a later block alone.
const luaRelease = luaAlways + luaRead + `
local function covers(tombstone, block)
  return block.hit == tombstone.hit or (type(block.since) == 'string' and block.since <= tombstone.released)
end
local tombstone = read(KEYS[2], 'released')
local block = read(KEYS[1], 'until')
if tombstone and tombstone.released >= ARGV[2] then
  if block and covers(tombstone, block) then redis.call('DEL', KEYS[1]) end
  return {tombstone.released == ARGV[2] and 'same' or 'unchanged', tombstone.hit or '', tombstone.stood_until or ''}
end
local value = cjson.decode(ARGV[1])
if block ~= nil and (ARGV[4] ~= 'covered' or (block and covers(value, block))) then
  if block and not value.hit and type(block.hit) == 'string' then
    value.hit, value.stood_until = block.hit, block['until']
  end
  redis.call('DEL', KEYS[1])
end
redis.call('SET', KEYS[2], cjson.encode(value), 'PXAT', ARGV[3])
return {'released', value.hit or '', value.stood_until or ''}
`

// luaAppend is the numbering of delta streams. An entry's id is <number>-<token>; numbers rise by one, and each entry names
// the id before it, so that a reader sees a gap and also a stretch that was lost and written anew. The first number of a
// life is the writer's clock: after a flush it cannot meet numbers that somebody still remembers.
//
// One call of append takes all that a script has for a stream, and sets last before it adds the first entry. Were the script to
// stop in between, last would be ahead of the stream: readers miss what they were promised, and load. Behind the stream it would
// have the next entry follow one that is not the newest, and whoever stood there would never hear of those between.
//
//	ARGV  1 number before the first, 2 length to which the stream is trimmed, roughly, 3 token
//
// It answers with the id of the last entry.
const luaAppend = `
local function append(stream, lastkey, entries)
  if #entries == 0 then return nil end
  local before = redis.call('GET', lastkey)
  local number = tonumber(before and string.match(before, '^(%d+)-') or ARGV[1])
  local top = redis.call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
  if top then number = math.max(number, tonumber(string.match(top[1], '^(%d+)-'))) end
  local function id(i) return string.format('%.0f', number + i) .. '-' .. ARGV[3] end
  redis.call('SET', lastkey, id(#entries))
  for i, entry in ipairs(entries) do
    redis.call('XADD', stream, 'MAXLEN', '~', ARGV[2], id(i), 'prev', before or '', unpack(entry))
    before = id(i)
  end
  return before
end
`

// luaDelta appends changes of blocks to a delta stream, and tells the modes stream when it is a new one. A stream that is
// written to no more is not trimmed either: it goes as a whole once its last entry is old. Its numbers live on in its last.
//
//	KEYS  1 stream, 2 its last, 3 set of streams, 4 modes stream, 5 its last
//	ARGV  as luaAppend, 4 the stream's name, 5 the id below which entries are old, or "", 6 ms for which entries are kept,
//	      then op, identity, rule, value of each change
//
// It answers with the id of the last entry.
const luaDelta = luaAlways + luaAppend + `
local changes = {}
for i = 7, #ARGV, 4 do
  changes[#changes + 1] = {'op', ARGV[i], 'identity', ARGV[i + 1], 'rule', ARGV[i + 2], 'value', ARGV[i + 3]}
end
local id = append(KEYS[1], KEYS[2], changes)
if ARGV[5] ~= '' then redis.call('XTRIM', KEYS[1], 'MINID', '~', ARGV[5], 'LIMIT', 0) end
redis.call('PEXPIRE', KEYS[1], ARGV[6])
if redis.call('SISMEMBER', KEYS[3], ARGV[4]) == 0 then
  append(KEYS[4], KEYS[5], {{'op', 'stream', 'value', ARGV[4]}})
  redis.call('SADD', KEYS[3], ARGV[4])
end
return id
`

// luaOwner tells whether the namespace is another installation's than mine. A mark that cannot be read is somebody
// else's, no mark nobody's. An empty mine is whoever's.
const luaOwner = `
local function foreign(key, mine)
  local text = mine ~= '' and redis.pcall('GET', key)
  if not text then return false end
  local ok, owner = pcall(cjson.decode, text)
  return not (ok and type(owner) == 'table' and owner.v == 1 and owner.installation == mine)
end
`

// luaModes raises the modes of rules and appends those that changed to the modes stream. Within a generation a different
// text replaces the old one: the rule's match has changed. A generation above MOST_GIVEN, rules.MostGiven, is no later
// than another one. What changed is told before it is kept: whoever runs a script again that stopped in between finds
// it unkept, and tells it again.
//
//	KEYS  1 rules hash, 2 modes stream, 3 its last, 4 set of streams, 5 whose the namespace is
//	ARGV  as luaAppend, 4 the stream's name, 5 whose it must be, then rule, generation, value of each
//
// It answers with their number, or "foreign" where the namespace is another installation's, and changes nothing then.
const luaModes = luaAlways + luaAppend + luaOwner + `
if foreign(KEYS[5], ARGV[5]) then return 'foreign' end
local raised, changes, given = {}, {}, MOST_GIVEN
for i = 6, #ARGV, 3 do
  local text = raised[ARGV[i]] or redis.call('HGET', KEYS[1], ARGV[i])
  local known = nil
  if text then
    local ok, value = pcall(cjson.decode, text)
    if ok and type(value) == 'table' and type(value.generation) == 'number' then known = value.generation end
  end
  local generation = tonumber(ARGV[i + 1])
  if known == nil or known < generation or (text ~= ARGV[i + 2]
    and (known == generation or known > given or generation > given)) then
    raised[ARGV[i]] = ARGV[i + 2]
    changes[#changes + 1] = {'op', 'mode', 'rule', ARGV[i], 'value', ARGV[i + 2]}
  end
end
append(KEYS[2], KEYS[3], changes)
for rule, text in pairs(raised) do redis.call('HSET', KEYS[1], rule, text) end
redis.call('SADD', KEYS[4], ARGV[4])
return #changes
`

// luaNever replaces the entries of never-block lists by newer ones, and tells of them on the modes stream. As luaModes,
// it tells before it keeps.
//
//	KEYS  1 the entries, 2 modes stream, 3 its last, 4 set of streams, 5 whose the namespace is
//	ARGV  as luaAppend, 4 the stream's name, 5 whose it must be, 6 revision, 7 value
//
// It answers as luaModes.
const luaNever = luaAlways + luaAppend + luaOwner + `
if foreign(KEYS[5], ARGV[5]) then return 'foreign' end
local text = redis.call('GET', KEYS[1])
if text then
  local ok, value = pcall(cjson.decode, text)
  local known = ok and type(value) == 'table' and value.revision
  if type(known) == 'number' and known >= tonumber(ARGV[6]) then return 0 end
end
append(KEYS[2], KEYS[3], {{'op', 'never', 'value', ARGV[7]}})
redis.call('SET', KEYS[1], ARGV[7])
redis.call('SADD', KEYS[4], ARGV[4])
return 1
`

// luaShapes names shapes. They are few: a new one comes with the first block of a rule's new key, not with a client.
//
//	KEYS  1 set of shapes
//	ARGV  shapes
const luaShapes = luaAlways + `
for i = 1, #ARGV do redis.call('SADD', KEYS[1], ARGV[i]) end
return 'ok'
`

// luaAdmit counts a block among those of its address, in a sorted set of expiries, unless there are too many. The same
// block counts once, however often it is asked for, by whichever process.
//
//	KEYS  1 sorted set
//	ARGV  1 how many may be in force, 2 the block's name, 3 its expiry in ms, 4 "extend" to raise the expiry only
//
// It answers "counted" where the block is counted already, "admitted" where it is from now on, "crowded", or "full" where
// Redis has no memory for one more.
const luaAdmit = luaFull + `
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local ends = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or 0)
if ends > now then
  if ends >= tonumber(ARGV[3]) then return 'counted' end
  redis.call('ZREM', KEYS[1], ARGV[2])
elseif ARGV[4] == 'extend' then
  return 'counted'
elseif redis.call('ZCOUNT', KEYS[1], string.format('(%.0f', now), '+inf') >= tonumber(ARGV[1]) then
  return 'crowded'
end
local refused = refusal(redis.pcall('ZADD', KEYS[1], ARGV[3], ARGV[2]))
if refused then return refused end
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
local last = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')
redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', tonumber(last[2])))
return ends > now and 'counted' or 'admitted'
`

// luaLeave counts a block no more.
//
//	KEYS  1 sorted set
//	ARGV  1 the block's name
const luaLeave = `
return redis.call('ZREM', KEYS[1], ARGV[1])
`
