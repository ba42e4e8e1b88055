// Package boardtest proves what dashboards and alerts ask: a real Prometheus scrapes weir under demo load, and every query of the
// committed boards and rules is put to it, or to that installation's PostgreSQL, in the form that Grafana gives it. What
// each panel of Prometheus says is held against a truth of its own, which shares no code with the boards, and so is what similar
// queries would say. There is nothing here but tests; they read the committed files.
package boardtest
