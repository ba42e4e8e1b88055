package main

// mutant is a promise of a document, a change of the program that breaks it, and the test that has to notice.
type mutant struct {
	doc, promise  string // the promise stands in the document in these words
	file          string
	line, becomes string // line is there once
	tested        string // the package of the test; empty: that of the file
	test          string
}

// mutants are promises by document.
func mutants() []mutant {
	return append(ofAccess(), ofTheRest()...)
}

func ofAccess() []mutant {
	const doc = "docs/access.md"
	return []mutant{
		{doc, "A rule of another owner he may look at like everybody, and not touch", "console/access/access.go",
			`&& slices.Contains(a.Owners, ruleOwner)`, `&& len(a.Owners) >= 0`, "", "TestWhoMayDoWhat"},
		{doc, "Where it cannot be written, the answer is 503, and nothing is told or kept", "console/access/routes.go",
			`if err == nil && Witnessed(route.Act) {`,
			`if err == nil && Witnessed(route.Act) && m.witness == nil {`, "",
			"TestWitnessedActsAreWrittenDownBefore"},
		{doc, "of a session whose token stands in the form, whether that form can be read", "console/access/form.go",
			`case err != nil:`, `case err != nil && len(r.PostForm) == 0:`, "", "TestAFormIsReadWholeOrNotAtAll"},
		{doc, "Every request by cookie that changes something needs the session's token against forgery",
			"console/signin/csrf.go", `[]byte(v.CSRF)) != 1 {`, `[]byte(v.CSRF)) == 2 {`, "",
			"TestMatrixOfTheSceneAndOfTheGuard"},
		{doc, "Over TLS the cookie is `__Host-weir-session`, `Secure`, `HttpOnly`, `SameSite=Lax`",
			"console/signin/session.go", `HttpOnly: true,`, `HttpOnly: false,`, "", "TestCookies"},
		{doc, "An address (`email`) is taken only where the provider says that it has verified it",
			"console/signin/oidc.go", `p.o.NameClaim == "email" && !verified ||`,
			`p.o.NameClaim == "email" && !verified && text == "" ||`, "", "TestPeopleSignIn"},
		{doc, "after 20 tokens or links that are refused an address gets 429", "console/signin/limit.go",
			`failures: newLimiter(clock, rate{burst: 20,`, `failures: newLimiter(clock, rate{burst: 200,`, "",
			"TestGuessingIsLimited"},
		{doc, "a request from another address, or that a proxy has passed on", "console/signin/signin.go",
			`if err != nil || !peer.Addr().Unmap().IsLoopback() {`,
			`if err != nil || !peer.IsValid() {`, "", "TestLocalIsForThisMachineAlone"},
		{doc, "when it expires, or when the configuration has it no longer", "console/signin/tokens.go",
			`case !g.o.Clock().Before(g.tokens[at].Expires):`, `case g.tokens[at].Expires.IsZero():`, "",
			"TestTokensOfScripts"},
		{doc, "is audited with the pseudonym, before the value is shown", "console/reveal/reveal.go",
			`if err := v.o.Trail.Add(ctx, entry); err != nil {`,
			`if err := v.o.Trail.Add(ctx, entry); value == "" {`, "",
			"TestWhatIsNotRevealed"},
		{doc, "nobody finds a value by hashing guesses", "console/access/sight.go", `if !m.Any() || plain == "" {`,
			`if m.Any() || plain == "" {`, "console/acts", "TestMaskedOwnersPromoteByTheHashThatTheyWereShown"},
		{doc, "What is beyond is an admin's: to apply it, promote, enable, raise its limit, roll back to it",
			"console/acts/bounded.go", `|| b.act == access.Demote ||`,
			`|| b.act == access.Demote || b.act == access.Enable ||`,
			"", "TestAnOwnerStaysWithinHisBounds"},
		{doc, "Every act goes to the audit trail with the name of who did it", "history/rulestore/raise.go",
			"return true, audit.Write(ctx, tx, entry)\n}", "return true, " +
				"nil\n}", "console/acts", "TestEveryActIsAudited"},
	}
}

func ofTheRest() []mutant {
	return []mutant{
		{"docs/api.md", "where somebody else was quicker, the answer is 412", "console/acts/modes.go",
			`seen != "" && seen != now.Revision {`,
			`seen != "" && seen == "none" {`, "console/api", "TestTwoOwnersAtOnce"},
		{"docs/api.md", "A plan that was shown and is not what would be done any more is 409",
			"history/rulestore/apply.go",
			`err != nil || !same {`, `err != nil && !same {`, "console/api", "TestPlanThatWasShown"},
		{"docs/api.md", "acts 3 times, 30 at once", "console/api/limits.go", `actBurst = 30`, `actBurst = 3000`, "",
			"TestActorsAreLimitedEachByThemselves"},
		{"docs/api.md", "a cell that a spreadsheet would take for one begins with an apostrophe",
			"console/shown/csv.go",
			`if begin != "" && strings.ContainsRune("=+-@＝＋－＠",`,
			`if begin != "" && strings.ContainsRune("=+-＝＋－＠",`, "",
			"TestNoCellIsAFormula"},
		{"docs/history.md", "JSON has such characters escaped (`\\u009b`)", "console/shown/json.go",
			`if r >= utf8.RuneSelf && n > 1 &&`, `if r >= utf8.RuneSelf && n > 2 &&`, "", "FuzzJSON"},
		{"docs/history.md", "a prefix must be a /24 or longer", "console/acts/erase.go", `leastPrefix4 = 24`,
			`leastPrefix4 = 8`, "", "TestErasePerson"},
		{"docs/history.md", "No row means no loss", "history/streams/losses.go", `ON CONFLICT DO NOTHING`,
			`HAVING false`, "history", "TestALossIsOneRow"},
		{"docs/gate.md", "A mode that is not signed, or not by this key, makes its rule one in shadow",
			"blocklist/signing/signing.go", `if !ed25519.Verify(t.public, t.message(signed), sum) {`,
			`if !ed25519.Verify(t.public, t.message(signed), sum) && rule == "" {`, "", "TestForgeries"},
		{"docs/gate.md", "A gate that has never seen Redis lets everything pass", "gate/gate.go",
			`if !g.o.Blocklist.Ready() {`, `if !g.o.Blocklist.Ready() && r == nil {`, "",
			"TestNothingIsRefusedBeforeTheBlocklistIsLoaded"},
		{"docs/blocks.md", "no block may hold a key that contains one of its addresses", "blocklist/neverblock.go",
			`return slices.ContainsFunc(n.configured, p.Prefix.Overlaps) || p.bareIP()`,
			`return p.bareIP() && slices.ContainsFunc(n.configured, p.Prefix.Overlaps) || p.bareIP()`, "",
			"TestAddressesOfNobodyAreNeverBlockedBare"},
		{"docs/blocks.md", "no gate refuses a request from one of them, whatever else it is blocked by",
			"blocklist/replica/replica.go", `if ok && r.never.Now().HoldsAddr(id.IP) {`,
			`if ok && r.never.Now().HoldsAddr(id.IP) && id.Device == "" {`, "", "TestNeverBlockHoldsAtRead"},
		{"docs/blocks.md", "Within a generation a block's `until` never falls", "blocklist/scripts.go",
			`if block['until'] >= ARGV[3] then return 'unchanged' end`,
			`if block['until'] == ARGV[3] then return 'unchanged' end`,
			"", "TestScriptsDoWhatTheModelSays"},
		{"docs/rules.md", "| `block.ttl` | duration | required | `1s` to `31d` |", "rules/check.go",
			`c.span("block.ttl", b.TTL, MinTTL, MaxTTL, allowedTTL)`,
			`c.span("block.ttl", b.TTL, MinTTL, 2*MaxTTL, allowedTTL)`,
			"", "TestParseBad"},
		{"docs/events.md",
			"**A header with several lines is nobody's**: the field is missing, with the reason `repeated`",
			"traffic/identifier.go", `if v.repeated = len(lines) > 1; len(lines) == 1 {`,
			`if v.repeated = len(lines) > 2; len(lines) == 1 {`, "", "TestFieldSources"},
		{"docs/events.md", "What lies further left is the client's word and is never looked at", "traffic/forwarded.go",
			`if why != Present || !p.trusts(a) {`,
			`if why != Present || !p.trusts(a) && len(entries.lines) == 0 && !entries.more {`,
			"", "TestNobodyForgesAnAddress"},
		{"docs/events.md", "never fills a field that is `vouched`", "traffic/identifier.go",
			`case v.claimed && src.Vouched:`, `case v.claimed && src.Vouched && v.fromCookie:`,
			"", "TestWhatAClientClaimsOfItself"},
		{"docs/security.md", "make a rule block that never has", "blocklist/replica/modes.go",
			"err := v.trust.Check(m.Rule, text)", "err := error(nil)\n\t_ = text", "",
			"TestAForgedModeBlocksNobody"},
		{"docs/operations.md", "no gap of records within a day", "history/streams/losses.go", `interval '1 day'`,
			`interval '2 days'`, "history", "TestALossIsOneRow"},
	}
}
