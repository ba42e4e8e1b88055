package arch

// room is a package of the floor plan: what it is, which other packages of this repository it imports, and which its tests
// import beside those and forTests.
type room struct {
	what           string
	imports, tests []string
}

// plan lists every package. Imports run one way:
//
//	traffic ← traffic/format ← rules ← detectors ← {ingest, blocklist, history} ← {gate, console} ← cmd
//
// It is exact: what a package does not import it may not import, either.
var plan = map[string]room{
	"traffic":        {what: "whose request it is: Request, identity map, Subject"},
	"traffic/format": {what: "how gateways write events: the decoders", imports: []string{"traffic"}},
	"rules": {
		what:    "rule documents: parse, validate, compare, match index",
		imports: []string{"internal/duration", "internal/nearest", "internal/yamlnode", "rules/promotion", "rules/reading", "traffic", "traffic/format"},
		tests:   []string{"rules/condition"},
	},
	"rules/promotion": {what: "what a rule asks before it may block, and how a canary goes about it", imports: []string{"internal/duration"}},
	"rules/reading":   {what: "how servers read a request's target, and what a path pattern means for it", imports: []string{"traffic"}},
	"rules/holding": {
		what:    "what a hit does to a block, for all who do it or foretell it",
		imports: []string{"rules", "traffic"},
		tests:   []string{"internal/oracle"},
	},
	"rules/condition": {
		what:    "conditions of rules: CEL on one event; what gates need not link",
		imports: []string{"internal/nearest", "rules/reading", "traffic", "traffic/format"},
	},
	"detectors": {
		what:    "pure: windows, fence, watermark, episodes, hits, snapshot encoding",
		imports: []string{"rules", "rules/holding", "traffic"},
		tests:   []string{"traffic/format"},
	},
	"ingest":       {what: "the ports of the stream and their plain types", imports: []string{"detectors", "rules", "traffic"}},
	"ingest/kafka": {what: "the only place that speaks Kafka", imports: []string{"ingest", "internal/retry", "traffic"}},
	"ingest/route": {
		what:    "ROUTE: where an event is routed, and where a commit is decided",
		imports: []string{"detectors", "ingest", "internal/retry", "rules", "rules/condition", "traffic", "traffic/format"},
		tests:   []string{"ingest/consume"},
	},
	"ingest/detect": {
		what:    "DETECT: where an event is counted",
		imports: []string{"detectors", "ingest", "internal/retry", "internal/ruleseries", "rules", "traffic"},
		tests:   []string{"ingest/kafka", "ingest/route", "traffic/format"},
	},
	"ingest/consume": {
		what:    "runs RECORD and ENFORCE over a topic; dead letters",
		imports: []string{"detectors", "ingest", "internal/retry", "traffic"},
		tests:   []string{"ingest/kafka"},
	},
	"ingest/archive": {what: "log files: their lines, and the way to the requests topic", imports: []string{"ingest", "internal/retry", "traffic", "traffic/format"}},
	"ingest/backtest": {
		what:    "rules over logs in process, without a server; over the live log beside the stages",
		imports: []string{"detectors", "ingest", "ingest/archive", "ingest/route", "internal/duration", "internal/retry", "rules", "rules/holding", "traffic", "traffic/format"},
		tests:   []string{"internal/oracle", "rules/condition"},
	},
	"blocklist": {
		what:    "the contract of blocks in Redis, and the store",
		imports: []string{"detectors", "internal/retry", "rules", "rules/holding", "traffic"},
	},
	"blocklist/enforce": {
		what:    "ENFORCE: what a hit does to whom",
		imports: []string{"blocklist", "blocklist/internal/recent", "detectors", "internal/retry", "internal/ruleseries", "rules", "rules/holding", "rules/promotion", "traffic"},
		tests:   []string{"blocklist/replica", "internal/story", "rules/condition"},
	},
	"blocklist/reconcile": {
		what:    "puts back what Redis forgot; publishes modes",
		imports: []string{"blocklist", "blocklist/internal/recent", "internal/retry", "rules", "traffic"},
		tests:   []string{"blocklist/replica", "detectors"},
	},
	"blocklist/replica": {
		what:    "the copy in process that gates ask",
		imports: []string{"blocklist", "internal/retry", "rules", "traffic"},
		tests:   []string{"blocklist/reconcile", "detectors"},
	},
	"blocklist/internal/recent": {what: "a bounded set of ids"},
	"blocklist/internal/blocktest": {
		what:    "ENFORCE over a store, for tests",
		imports: []string{"blocklist", "blocklist/enforce", "detectors", "internal/testbed", "rules", "traffic"},
	},
	"history": {
		what: "RECORD, and what analysts ask",
		imports: []string{"blocklist", "detectors", "history/audit", "history/orders", "history/partitions",
			"history/postgres", "history/retention", "history/rulestore", "history/streams", "ingest", "rules",
			"rules/promotion", "traffic"},
	},
	"history/explore": {
		what: "what people ask of history: filters, groups, timelines, one hit with all about it",
		imports: []string{"blocklist", "detectors", "history", "history/audit", "history/orders", "history/postgres",
			"history/streams", "history/sums", "ingest", "internal/duration", "internal/plural", "rules", "traffic"},
		tests: []string{"history/erasure", "history/retention", "history/rulestore"},
	},
	"history/retention": {
		what:    "days of history: made ahead, dropped when their time is over",
		imports: []string{"history/postgres", "history/sums", "internal/retry", "traffic"},
	},
	"history/sums":     {what: "sums of hits by hour, and whether they hold", imports: []string{"history/postgres", "traffic"}},
	"history/postgres": {what: "connections, watch, errors", imports: []string{"internal/retry", "migrations", "traffic"}},
	"history/rulestore": {
		what:    "rule versions, routing versions, modes",
		imports: []string{"history/audit", "history/postgres", "history/streams", "rules", "rules/promotion", "traffic", "traffic/format"},
	},
	"history/partitions": {
		what:    "claims and snapshots of DETECT",
		imports: []string{"detectors", "history/audit", "history/postgres", "ingest", "traffic"},
		tests:   []string{"history/streams"},
	},
	"history/streams": {
		what:    "generations and secrets of streams",
		imports: []string{"detectors", "history/audit", "history/postgres", "ingest", "traffic"},
	},
	"history/audit": {what: "who did what, and why", imports: []string{"history/postgres", "traffic"}},
	"history/evidence": {
		what:    "dossiers: what a version of a rule would have done, had it blocked",
		imports: []string{"detectors", "history/postgres", "history/rulestore", "history/streams", "internal/duration", "rules", "rules/promotion", "traffic"},
	},
	"history/sessions": {what: "who is signed in at a console, or invited to it", imports: []string{"history/audit",
		"history/postgres", "traffic"}},
	"history/erasure": {
		what:    "a person is taken out of history",
		imports: []string{"history/audit", "history/postgres", "history/streams", "traffic"},
	},
	"history/orders": {what: "blocks that people order: stored and audited, for ENFORCE to carry out",
		imports: []string{"blocklist", "history/audit", "history/postgres", "rules", "traffic"},
		tests:   []string{"history/historytest"}},
	"history/savedviews": {what: "views of the explorer that people keep", imports: []string{"history/postgres"}},
	"history/historytest": {
		what:    "a history for tests",
		imports: []string{"blocklist", "detectors", "history", "history/postgres", "history/retention", "history/rulestore", "history/streams", "history/sums", "internal/testbed", "migrations", "rules", "traffic", "traffic/format"},
	},
	"migrations": {what: "SQL, embedded", tests: []string{"internal/local"}},
	"gate": {
		what:    "inline enforcement; users' own servers import it: see examples",
		imports: []string{"blocklist", "rules", "traffic"},
		tests:   []string{"blocklist/enforce", "blocklist/reconcile", "blocklist/replica", "detectors", "traffic/format"},
	},
	"console/acts": {
		what: "what people do, checked and audited alike whoever asks",
		imports: []string{"blocklist", "console/access", "detectors", "history/audit", "history/erasure",
			"history/explore", "history/orders", "history/partitions", "history/postgres", "history/rulestore",
			"ingest",
			"internal/duration", "internal/plural", "internal/retry", "rules", "rules/promotion", "traffic"},
		tests: []string{"console/reveal", "history"},
	},
	"console/why": {
		what:    "what is behind a block, and whether it holds now: history and Redis together",
		imports: []string{"blocklist", "gate", "history", "history/audit", "history/explore", "history/streams", "internal/plural", "rules", "rules/promotion", "traffic"},
	},
	"console/letters": {
		what:    "what stages could not use, read from the topic of dead letters",
		imports: []string{"history/explore", "ingest", "rules", "traffic"},
	},
	"console/api": {
		what:    "the same over HTTP, from one table of routes",
		imports: []string{"blocklist", "console/access", "console/acts", "console/letters", "console/reveal", "console/shown", "console/why", "detectors", "history", "history/audit", "history/evidence", "history/explore", "history/postgres", "history/rulestore", "history/streams", "ingest", "internal/duration", "rules", "rules/promotion", "traffic"},
		tests:   []string{"history/erasure", "rules/condition"},
	},
	"cmd/weir/internal/desk": {
		what:    "where commands act: on the stores, or through a server",
		imports: []string{"blocklist", "cmd/weir/internal/usage", "console/access", "console/acts", "console/api", "console/remote", "history/audit"},
	},
	"cmd/weir/internal/server": {
		what: "pages and API behind sign-in",
		imports: []string{"blocklist", "cmd/weir/internal/config", "cmd/weir/internal/service",
			"cmd/weir/internal/trial", "cmd/weir/internal/usage", "console", "console/access", "console/acts",
			"console/api", "console/letters",
			"console/pages", "console/reveal", "console/signin", "console/why", "history", "history/evidence",
			"history/explore", "history/partitions", "history/rulestore", "history/savedviews", "history/sessions",
			"ingest", "ingest/kafka", "internal/retry", "rules"},
		tests: []string{"cmd/weir/internal/desk", "cmd/weir/internal/stream", "detectors", "history/audit",
			"history/orders", "ingest/consume", "rules/condition", "traffic"},
	},
	"history/ramp": {
		what:    "canaries go on, or fall back: what is due, by the clock of the database",
		imports: []string{"history/rulestore", "internal/retry", "rules/promotion"},
		tests:   []string{"rules"},
	},
	"console": {
		what:    "web pages",
		imports: []string{"blocklist", "console/shown", "console/standing", "history", "history/rulestore", "internal/retry", "rules", "traffic"},
		tests:   []string{"blocklist/enforce", "detectors", "history/postgres", "history/streams", "traffic/format"},
	},
	"console/remote": {
		what:    "the API's client, for commands",
		imports: []string{"blocklist", "console/access", "console/acts", "console/api", "console/letters", "console/why", "history", "history/audit", "history/evidence", "history/explore", "history/rulestore", "history/streams", "ingest", "rules", "traffic"},
	},
	"console/shown":    {what: "texts for reading: sources, events, commands, numbers, times; cells of CSV", imports: []string{"rules", "traffic"}},
	"console/standing": {what: "what has become of an over-limit source", imports: []string{"blocklist", "detectors", "history/rulestore", "rules", "rules/holding", "traffic"}},
	"console/chart":    {what: "charts as SVG", imports: []string{"console/shown", "traffic"}},
	"console/pages": {
		what: "pages that are rendered here and work without a script",
		imports: []string{"blocklist", "console", "console/access", "console/acts", "console/chart", "console/shown",
			"console/standing", "detectors", "history", "history/audit", "history/evidence", "history/explore",
			"history/orders", "history/postgres", "history/rulestore", "history/savedviews", "ingest",
			"internal/duration", "internal/nearest", "internal/plural", "rules", "rules/promotion", "traffic"},
		tests: []string{"internal/story"},
	},
	"console/access": {what: "pure: who may do what, and who is shown pseudonyms", imports: []string{"traffic"}},
	"console/reveal": {
		what:    "what is behind a pseudonym, for who may and says why",
		imports: []string{"console/access", "history/audit"},
		tests:   []string{"history/sessions"},
	},
	"console/signin": {
		what:    "who asks: OpenID Connect, invitations, sessions, tokens; turns away who may not",
		imports: []string{"console/access", "history/audit", "history/postgres", "history/sessions", "traffic"},
	},
	"console/signin/signintest": {
		what:    "an OpenID provider, its people, and the authorisation matrix, for tests",
		imports: []string{"console/access", "console/signin", "history/audit", "history/sessions", "internal/testbed"},
	},
	"dashboards": {
		what:    "what Grafana shows of weir, as Go and as its JSON",
		imports: []string{"dashboards/alerts"},
		tests:   []string{"blocklist", "detectors", "history", "history/retention", "history/rulestore", "rules", "traffic"},
	},
	"dashboards/alerts":              {what: "rules for Prometheus: records, alerts, objectives", imports: []string{"internal/duration"}},
	"dashboards/grafana":             {what: "puts boards into a Grafana by its HTTP API", imports: []string{"dashboards", "internal/retry"}},
	"dashboards/grafana/grafanatest": {what: "a Grafana for tests of that"},
	"cmd/weir": {
		what: "one file per command: flags, call, print; the only os.Exit",
		imports: []string{"blocklist", "cmd/weir/internal/allow", "cmd/weir/internal/asking",
			"cmd/weir/internal/config", "cmd/weir/internal/counters", "cmd/weir/internal/desk",
			"cmd/weir/internal/devserver", "cmd/weir/internal/doctor", "cmd/weir/internal/dossier",
			"cmd/weir/internal/people", "cmd/weir/internal/report", "cmd/weir/internal/ruletry",
			"cmd/weir/internal/server", "cmd/weir/internal/service", "cmd/weir/internal/stream",
			"cmd/weir/internal/subject", "cmd/weir/internal/terminal", "cmd/weir/internal/trial",
			"cmd/weir/internal/usage",
			"cmd/weir/internal/versions", "console", "console/access", "console/acts", "console/api",
			"dashboards", "dashboards/alerts", "dashboards/grafana", "detectors", "history",
			"history/erasure", "history/evidence", "history/explore", "history/orders",
			"history/postgres", "history/rulestore", "history/sessions",
			"ingest", "ingest/archive", "ingest/backtest", "internal/duration", "internal/loadgen",
			"internal/loadgen/verify", "internal/plural", "rules", "rules/condition", "traffic",
			"traffic/format"},
		tests: []string{"console/pages", "console/remote", "console/reveal", "gate", "history/audit",
			"history/streams", "ingest/kafka", "internal/demo", "internal/local"},
	},
	"cmd/weir/internal/versions": {
		what: "weir rules diff, history, rollback, export, set-limit, try",
		imports: []string{"cmd/weir/internal/desk", "cmd/weir/internal/service", "cmd/weir/internal/subject",
			"cmd/weir/internal/terminal", "cmd/weir/internal/usage", "console/acts", "console/api", "history/audit",
			"history/rulestore", "internal/plural", "rules"},
		tests: []string{"traffic"},
	},
	"cmd/weir/internal/asking": {
		what: "weir history and weir why: questions read from the command line, answers written",
		imports: []string{"blocklist", "cmd/weir/internal/config", "cmd/weir/internal/service",
			"cmd/weir/internal/subject", "cmd/weir/internal/terminal", "cmd/weir/internal/usage", "console/letters",
			"console/why", "detectors", "gate", "history", "history/audit", "history/erasure", "history/explore",
			"history/orders", "history/streams", "ingest", "internal/duration", "internal/plural", "rules",
			"traffic"},
		tests: []string{"cmd/weir/internal/desk", "cmd/weir/internal/dossier", "console/access", "console/acts", "console/api", "console/remote", "history/evidence"},
	},
	"cmd/weir/internal/config": {
		what:    "what can be set: schema, load, validate, origins",
		imports: []string{"blocklist", "console/access", "console/signin", "detectors", "history/retention", "ingest", "internal/duration", "internal/plural", "internal/yamlnode", "rules", "rules/condition", "traffic", "traffic/format"},
	},
	"cmd/weir/internal/service": {
		what: "opens the servers, makes the stages, runs and stops them",
		imports: []string{"blocklist", "blocklist/enforce", "blocklist/reconcile", "blocklist/replica",
			"cmd/weir/internal/config", "cmd/weir/internal/terminal", "cmd/weir/internal/usage", "console",
			"console/acts", "console/api", "detectors", "gate", "history", "history/audit", "history/erasure",
			"history/evidence",
			"history/explore", "history/orders", "history/partitions", "history/postgres", "history/ramp",
			"history/retention",
			"history/rulestore", "history/streams", "ingest", "ingest/archive", "ingest/consume", "ingest/detect",
			"ingest/kafka", "ingest/route", "internal/retry", "internal/ruleseries", "rules", "traffic"},
	},
	"cmd/weir/internal/doctor": {
		what:    "what weir doctor checks",
		imports: []string{"blocklist", "cmd/weir/internal/config", "cmd/weir/internal/service", "cmd/weir/internal/stream", "cmd/weir/internal/terminal", "detectors", "history", "history/partitions", "history/postgres", "history/retention", "history/streams", "ingest", "ingest/detect", "ingest/kafka", "ingest/route", "internal/plural", "rules", "traffic", "traffic/format"},
		tests:   []string{"migrations"},
	},
	"cmd/weir/internal/devserver": {
		what:    "weir dev",
		imports: []string{"blocklist/replica", "cmd/weir/internal/config", "cmd/weir/internal/server", "cmd/weir/internal/service", "cmd/weir/internal/stream", "cmd/weir/internal/subject", "cmd/weir/internal/usage", "console/access", "detectors", "gate", "history", "history/rulestore", "ingest", "internal/demo", "internal/local", "internal/plural", "rules", "rules/condition"},
	},
	"cmd/weir/internal/stream": {
		what: "the life of a stream: migrate, ingest, replay, backtest beside it",
		imports: []string{"cmd/weir/internal/config", "cmd/weir/internal/service", "cmd/weir/internal/terminal",
			"cmd/weir/internal/usage", "detectors", "history", "history/postgres", "history/retention",
			"history/streams", "ingest", "ingest/archive", "ingest/backtest", "ingest/detect", "ingest/kafka",
			"ingest/route", "internal/duration", "internal/plural", "internal/retry", "rules", "traffic",
			"traffic/format"},
	},
	"cmd/weir/internal/allow": {
		what: "weir allow: the commands about allow lists",
		imports: []string{"cmd/weir/internal/desk", "cmd/weir/internal/subject", "cmd/weir/internal/terminal",
			"cmd/weir/internal/usage", "console/acts", "console/api", "history/rulestore", "internal/duration",
			"rules", "traffic"},
	},
	"cmd/weir/internal/people": {
		what: "weir console invite and sessions: who is let into the console",
		imports: []string{"cmd/weir/internal/config", "cmd/weir/internal/terminal", "cmd/weir/internal/usage",
			"console/access", "console/signin", "history/audit", "history/sessions", "internal/duration"},
	},
	"cmd/weir/internal/counters": {
		what: "weir counters: the commands about what rules have counted",
		imports: []string{"cmd/weir/internal/desk", "cmd/weir/internal/subject", "cmd/weir/internal/terminal",
			"cmd/weir/internal/usage", "console/acts", "console/api", "detectors", "history/rulestore",
			"internal/duration", "rules", "traffic"},
	},
	"cmd/weir/internal/report": {
		what:    "what a backtest has found: table, JSON, CSV, page",
		imports: []string{"cmd/weir/internal/subject", "cmd/weir/internal/terminal", "detectors", "ingest/backtest", "internal/duration", "internal/plural", "rules", "traffic"},
		tests:   []string{"ingest/archive"},
	},
	"cmd/weir/internal/dossier": {
		what:    "weir rules evidence",
		imports: []string{"cmd/weir/internal/service", "cmd/weir/internal/subject", "cmd/weir/internal/terminal", "cmd/weir/internal/usage", "history/evidence", "internal/duration", "internal/plural", "traffic"},
	},
	"cmd/weir/internal/ruletry": {
		what:    "rule documents tried without a server: tests, explain, schema",
		imports: []string{"cmd/weir/internal/config", "cmd/weir/internal/subject", "cmd/weir/internal/terminal", "cmd/weir/internal/usage", "detectors", "ingest/route", "internal/duration", "internal/plural", "internal/story", "internal/yamlnode", "rules", "rules/condition", "traffic", "traffic/format"},
	},
	"cmd/weir/internal/trial": {
		what: "documents tried: their tests, and their rules over the latest requests",
		imports: []string{"blocklist", "cmd/weir/internal/config", "cmd/weir/internal/ruletry",
			"cmd/weir/internal/service", "cmd/weir/internal/stream", "console/acts", "history", "ingest",
			"ingest/backtest", "ingest/kafka", "internal/duration", "rules", "traffic"},
		tests: []string{"rules/condition"},
	},
	"cmd/weir/internal/terminal": {what: "tables, times, safe text, progress", imports: []string{"console/shown",
		"internal/plural", "traffic"}},
	"cmd/weir/internal/usage": {
		what:    "mistakes of a command line, and its flags",
		imports: []string{"cmd/weir/internal/terminal", "internal/duration", "rules"},
	},
	"cmd/weir/internal/metrics": {
		what:  "docs/metrics.md held to the registries of an installation; tests only",
		tests: []string{"cmd/weir/internal/config", "cmd/weir/internal/server", "cmd/weir/internal/service", "cmd/weir/internal/stream", "console/access", "gate", "internal/demo", "rules"},
	},
	"cmd/weir/internal/subject": {
		what:    "subjects as words of a shell",
		imports: []string{"cmd/weir/internal/usage", "traffic"},
		tests:   []string{"cmd/weir/internal/terminal"},
	},
	"internal/naughty":    {what: "texts that programs have stumbled over, for tests"},
	"internal/retry":      {what: "backoff, and what to log meanwhile"},
	"internal/yamlnode":   {what: "YAML values with their lines, for rules, stories and the configuration"},
	"internal/duration":   {what: "90s, 1d12h: in rules, settings and flags"},
	"internal/nearest":    {what: "the name that was probably meant, for hints"},
	"internal/plural":     {what: "1 rule, 2 rules: in messages"},
	"internal/ruleseries": {what: "Prometheus series by rule: they come and go with it"},
	"internal/local":      {what: "servers of this machine, for weir dev and tests"},
	"internal/browser":    {what: "a Chromium for tests"},
	"internal/testbed":    {what: "servers for tests", imports: []string{"internal/local"}},
	"internal/kafkakit": {
		what:    "a Kafka client and topics for tests",
		imports: []string{"ingest", "ingest/kafka", "internal/testbed", "traffic"},
	},
	"internal/oracle": {what: "judges the detectors, so shares nothing with them"},
	"internal/evidenceoracle": {
		what: "judges dossiers, so shares nothing with them",
		tests: []string{"detectors", "history", "history/evidence", "history/retention", "history/rulestore",
			"history/streams", "ingest/backtest", "rules", "rules/condition", "rules/promotion", "traffic"},
	},
	"internal/loadgen": {
		what:    "a load and what is true of it; judges, so asks the oracle",
		imports: []string{"internal/duration", "internal/oracle", "internal/retry", "rules", "traffic", "traffic/format"},
		tests:   []string{"detectors"},
	},
	"internal/loadgen/verify": {
		what:    "what an installation has in history against the truth of a load",
		imports: []string{"detectors", "history", "history/partitions", "history/rulestore", "history/streams", "ingest", "internal/loadgen", "internal/plural", "internal/retry", "rules", "traffic"},
	},
	"internal/demo": {
		what:    "the traffic of weir dev, and its judge, who asks the oracle",
		imports: []string{"blocklist", "gate", "internal/oracle", "internal/retry", "rules", "traffic", "traffic/format"},
		tests:   []string{"detectors"},
	},
	"internal/story": {
		what:    "stories read, and played through the windows",
		imports: []string{"detectors", "ingest", "ingest/route", "internal/duration", "internal/yamlnode", "rules", "rules/condition", "rules/holding", "traffic", "traffic/format"},
		tests:   []string{"internal/oracle"},
	},
	"internal/arch":      {what: "this plan"},
	"scripts/stopping":   {what: "runs tests on a machine that stands still now and then"},
	"scripts/testreport": {what: "reads go test -json"},
	"internal/doctest": {
		what:  "what the documents show, read and run; tests only",
		tests: []string{"internal/story", "rules", "rules/condition", "traffic", "traffic/format"},
	},
	"internal/boardtest":  {what: "every query of boards and alerts, asked of real servers; tests only", tests: []string{"internal/demo"}},
	"internal/kube":       {what: "the Helm chart and the manifests made of it, rendered, validated and run by the real program; tests only"},
	"internal/operations": {what: "what operators are given, held to its word: the release, the units, the figures and commands of docs/operations.md; tests only"},
	"internal/deploy":     {what: "what docker-compose.yml mounts, run by real programs; tests only"},
	"internal/simulation": {
		what:  "the stages over fakes, by seeds; tests only",
		tests: []string{"blocklist", "blocklist/enforce", "blocklist/reconcile", "blocklist/replica", "detectors", "history", "ingest", "ingest/consume", "ingest/detect", "ingest/route", "internal/simulation/judge", "internal/story", "rules", "traffic", "traffic/format"},
	},
	"internal/simulation/judge": {
		what:    "what a simulated stream must have come to: judges, so asks the oracle and shares nothing else",
		imports: []string{"internal/oracle"},
	},
	"internal/peers": {
		what:  "other limiters' cases, run through our windows; tests only",
		tests: []string{"detectors", "rules", "traffic", "traffic/format"},
	},
	"internal/order": {what: "the windows under every order of events; tests only", tests: []string{"detectors", "rules", "traffic"}},
	"internal/acceptance": {
		what:  "whole streams judged from outside; tests only",
		tests: []string{"blocklist", "blocklist/replica", "detectors", "gate", "history/evidence", "ingest/backtest", "internal/evidenceoracle", "rules", "traffic"},
	},
	"internal/adversary": {
		what:  "clients that want past a block, and real servers; tests only",
		tests: []string{"blocklist", "rules", "traffic", "traffic/format"},
	},
	"internal/exactness": {what: "a load, and the judges of what came of it", imports: []string{"internal/oracle"}},
	"internal/secured":   {what: "weir on servers with TLS that let in only whom they know, each process with the rights that the docs give it; tests only", tests: []string{"internal/local"}},
	"internal/faults":    {what: "real processes and servers killed, frozen and restarted; tests only", tests: []string{"internal/local"}},
}
