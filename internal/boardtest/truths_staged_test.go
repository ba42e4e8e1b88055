package boardtest

// stagedTruths say what panels show of the played processes, by uid and title.
func stagedTruths(f *facts, instances map[string]string) map[string]panelTruth {
	rate := func(n float64, labels ...string) value { return is(f.perSecond(n), labels...) }
	one, two := instances["stage1"], instances["stage2"]
	// Of 100 that were counted 30 took up to 0.1 s and all up to 0.2 s.
	const p50, p90, p99 = 0.1 + 0.1*20/70, 0.1 + 0.1*60/70, 0.1 + 0.1*69/70
	took := panelTruth{"p50": {is(p50)}, "p90": {is(p90)}, "p99": {is(p99)}}
	buckets := panelTruth{"{{le}}": f.perStep([]value{is(30, "le", "0.1"), is(100, "le", "0.2"), is(100, "le", "+Inf")})}
	on := func(labels ...string) []string { return append(labels, "job", "weir") }
	truths := map[string]map[string]panelTruth{
		uidPipeline: {
			"Processes gone": {"gone": {is(2)}},
			"Size by table":  {"{{table}}": {between(1e6, 2e6, "table", "hits"), between(1e6, 2e6, "table", "audit"), is(700, "table", "losses")}},
			"Events in":      {"events": {rate(30000)}},
			"Dead letters":   {"dead letters": {is(26)}},
			"Records by stage": {
				"route: events": {rate(30000)}, "route: records keyed": {rate(7000)}, "detect: events": {rate(6700)},
				"{{stage}}: records": {rate(77, "stage", "record"), rate(121, "stage", "enforce")},
			},
			"What becomes of events": {
				"routed": {rate(30000 - 300 - 30 - 3 - 11)}, "no rule watches": {rate(300)}, "nothing to count by": {rate(30)},
				"own refusals": {rate(3)}, "dead letters": {rate(11)},
			},
			"Hits by phase":                    {"{{phase}}": {rate(240, "phase", "open"), rate(110, "phase", "closed")}},
			"Uncounted events by reason":       {"{{reason}}": {rate(12, "reason", "late"), rate(6, "reason", "missing_field")}},
			"Uncounted events by rule":         {"{{rule}}": {rate(18, "rule", "a", "namespace", stageNamespace)}},
			"Key fields missing":               {"{{rule}} {{field}}": {rate(17, "rule", "a", "field", "ip")}},
			"Dead letters by stage and reason": {"{{stage}} {{reason}}": {is(11, "stage", "route", "reason", "malformed"), is(15, "stage", "ingest", "reason", "malformed")}},
			"Partitions taken by outcome":      {"{{outcome}}": {is(7, "outcome", "fresh")}},
			"Consumer groups":                  {"{{group}}": {is(3, "group", "g")}},
			"Rows recorded":                    {"{{table}}": {rate(63, "table", "hits")}},
			"Oldest waiting":                   {"lag": {is(6)}},
			"Watermark delay":                  {"delay": {is(63)}},
			"Event to block, p99":              {"p99": {is(p99)}},
			"Stopped partitions":               {"stopped": {is(3 + 2 + 3 + 2)}},
			"Sources over limit":               {"open episodes": {is(107)}},
			"Lag in time":                      {"{{stage}}": {is(6, "stage", "route"), is(4, "stage", "enforce")}},
			"Lag in records":                   {"{{stage}}": {is(110, "stage", "route"), is(4, "stage", "enforce")}},
			"Watermark delay over time":        {"worst": {is(63)}, "best": {is(61)}},
			"How far sources lie apart":        {"apart": {is(7)}},
			"Read ahead by ROUTE":              {"read ahead": {is(1500)}},
			"Waits for order":                  {"waits": {rate(101)}},
			"Fence drops":                      {"dropped": {rate(202)}},
			"Losses":                           {"{{stage}}: deleted": {is(57, "stage", "record"), is(500, "stage", "enforce")}, "detect: told": {is(606)}},
			"Keys by partition":                {"{{partition}}": {is(12, "partition", "0"), is(120, "partition", "1")}},
			"Share of the budget":              {"{{partition}}": {is(0.25, "partition", "0"), is(0.5, "partition", "1")}},
			"Evictions by reason":              {"{{reason}}": {rate(707, "reason", "few"), rate(80, "reason", "offender")}},
			"Snapshot age":                     {"{{partition}}": {is(9, "partition", "0"), is(110, "partition", "1")}},
			"Time to store a snapshot":         {"p50": took["p50"], "p99": took["p99"]},
			"Event to block":                   took, "Event to block, all of them": buckets,
			"Decisions":              {"{{action}}": {rate(9+10+300+900, "action", "withheld"), rate(4000, "action", "written")}},
			"Not blocked, by reason": {"{{reason}}": {rate(9+10+900, "reason", "full"), rate(300, "reason", "max_lag")}},
			// Reasons that never stood in the way are not shown, and the others each with all their attempts.
			"Attempts withheld, by reason": {"{{reason}}": {rate(38+3600, "reason", "full"), rate(310, "reason", "max_lag")}},
			"Failures by stage": {
				"route: chunks given again": {rate(1111)}, "route: fetches": {rate(1212)},
				"detect: {{call}}":   {rate(1313, "call", "claim"), rate(140, "call", "store")},
				"{{stage}}: batches": {rate(1515, "stage", "record"), rate(160, "stage", "enforce")},
			},
			"Kafka errors": {
				"fetch: {{reason}}":  {rate(17+18+1700, "reason", "closed")},
				"append: {{reason}}": {rate(1919, "reason", "timeout")}, "commit: {{reason}}": {rate(2020, "reason", "fenced")},
			},
			"Time to take a batch": {"Kafka: {{topic}}": {is(p99, "topic", "a")}, "{{stage}}": {is(p99, "stage", "record")}},
			"Stopped partitions by stage": {
				"{{stage}}: halted": {is(3, "stage", "record")}, "route: refused": {is(2)},
				"{{stage}}: stranded": {is(3, "stage", "enforce")}, "{{stage}}: newer format": {is(2, "stage", "enforce")},
			},
			"Blind partitions":              {"blind": {is(2)}},
			"Partitions that bring nothing": {"stalled sources": {is(3)}, "{{topic}}: silent": {is(22, "topic", "a"), is(30, "topic", "b")}},
			"Memory of Redis":               {"{{node}}": {is(0.25, "node", "a"), is(0, "node", "b")}},
			"Memory of Redis in bytes":      {"{{node}}": {is(64, "node", "a"), is(65, "node", "b")}},
			"Put back by the reconciler":    {"{{outcome}}": {is(2121, "outcome", "restored"), is(220, "outcome", "released")}},
			"Not asserted":                  {"unasserted": {is(23)}},
			"Not published":                 {"reconciler": {is(2424)}, "modes": {is(2525)}, "last known modes": {is(2626)}},
			// 1,500 bytes a second, as closely as a second's scrapes tell.
			"Grows in a day": {"a day": {between(1500*86400*0.95, 1500*86400*1.05)}},
			"Goroutines":     {"{{instance}}": {is(27, on("instance", one, "role", "stage1")...), is(270, on("instance", two, "role", "stage2")...)}},
		},
		uidRule: {
			"Over limit now":  {"over limit": {is(107)}},
			"Holds, or would": {"{{mode}}": {is(5, "mode", "block"), is(11, "mode", "shadow")}},
			"Episodes":        {"{{phase}}": f.perStep([]value{is(240, "phase", "open"), is(110, "phase", "closed")})},
			"Beside the limit": {
				"{{kind}} {{phase}}":  f.perStep([]value{is(3400, "kind", "near", "phase", "open"), is(42, "kind", "candidate", "phase", "open")}),
				"near, not warned of": f.perStep([]value{is(56)}),
			},
			"Events over the limit": {"{{outcome}}": {rate(47, "outcome", "counted"), rate(5, "outcome", "over")}},
			"Decisions, and what shadow would decide": {"{{mode}}: {{action}} {{reason}}": f.perStep([]value{
				is(919, "mode", "block", "action", "withheld", "reason", "full"), is(300, "mode", "block", "action", "withheld", "reason", "max_lag"),
				is(4000, "mode", "block", "action", "written"), is(50000, "mode", "shadow", "action", "would_withhold", "reason", "full"),
			})},
			"Blocks":                         {"{{mode}}": {is(5, "mode", "block"), is(11, "mode", "shadow")}, "gate": {is(4, "rule", "a"), is(6, "rule", "b")}},
			"Refused at gates":               {"{{decision}}": {rate(30, "decision", "refuse")}},
			"What became of matching events": {"{{outcome}}": {rate(43, "outcome", "matched")}, "let pass: {{list}}": {rate(14, "list", "office")}},
			"Not counted, by reason":         {"{{reason}}": {rate(12, "reason", "late"), rate(6, "reason", "missing_field")}},
			"What events lack":               {"key: {{field}}": {rate(17, "field", "ip")}, "value: {{reason}}": {rate(7, "reason", "absent")}, "condition: {{reason}}": {rate(12, "reason", "type")}, "tier: {{reason}}": {rate(13, "reason", "size")}},
		},
		uidGate: {
			"Gates gone":                   {"gone": {is(1)}},
			"Requests":                     {"requests": {rate(151)}},
			"Refused":                      {"refused": {is(30. / 151)}},
			"Passed unjudged":              {"fail_open": {is(11. / 151)}},
			"Share passed unjudged":        {"{{protocol}}": {is(11./151, "protocol", "http")}},
			"Blocks held by rule":          {"{{rule}}": {is(4, "rule", "a", "namespace", stageNamespace), is(6, "rule", "b", "namespace", stageNamespace)}},
			"Blocks held by gate":          {"{{instance}}": {is(10, "instance", one), is(3, "instance", two)}},
			"Staleness":                    {"{{instance}}": {is(33, "instance", one), is(3, "instance", two)}},
			"Behind":                       {"{{instance}}": {is(34, "instance", one), is(4, "instance", two)}},
			"Client address unknown":       {"{{reason}}": {rate(3, "reason", "absent")}},
			"Fields that say nobody":       {"{{field}} {{reason}}": {rate(7, "field", "device", "reason", "repeated")}},
			"Malformed":                    {"{{reason}}": {rate(11, "reason", "not_http")}, "request not told": {rate(15)}},
			"Gates not ready":              {"not ready": {is(1)}},
			"Gates that only observe":      {"observing": {is(2)}},
			"Stalest gate":                 {"staleness": {is(33)}},
			"Reloads by reason":            {"{{reason}}": {is(3131, "reason", "gap")}},
			"Failures":                     {"no answer": {is(2929)}, "observe file": {is(2727)}, "rejected: {{reason}}": {is(3030, "reason", "unreadable")}, "slots missing": {is(3232)}},
			"Time of a check":              took,
			"Time of a check, all of them": buckets,
			"Rules": {
				"rules":   {is(1, "rule", "a", "owner", "o", "mode", "block", "namespace", stageNamespace), is(1, "rule", "b", "owner", "o", "mode", "shadow", "namespace", stageNamespace)},
				"refused": {is(30, "rule", "a", "namespace", stageNamespace)}, "would be refused": nil,
				"blocks held": {is(4, "rule", "a", "namespace", stageNamespace), is(6, "rule", "b", "namespace", stageNamespace)},
			},
			"Gates": {
				"ready": {is(1, "instance", one)}, "build": {is(1, "instance", one, "version", "1"), is(1, "instance", two, "version", "1")},
				"observes": {is(1, "instance", one), is(1, "instance", two)}, "staleness": {is(33, "instance", one), is(3, "instance", two)},
				"blocks": {is(10, "instance", one), is(3, "instance", two)}, "requests": {rate(65, "instance", one), rate(86, "instance", two)},
			},
			"Spared": {"spared": {rate(2828)}},
		},
	}
	all := map[string]panelTruth{}
	for uid, of := range truths {
		for title, want := range of {
			all[uid+" / "+title] = want
		}
	}
	return all
}
