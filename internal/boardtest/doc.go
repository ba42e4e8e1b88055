// Package boardtest proves what dashboards and alerts ask: a real Prometheus scrapes weir under demo load, and
// every query of the committed boards and rules is put to it, or to that installation's PostgreSQL, in the form
// that Grafana gives it. The panels by which people decide are held against truths that share no code with the
// boards: what lies in Kafka's logs, PostgreSQL and Redis, what the test itself sent, and numbers put on a stage.
// There is nothing here but tests; they read the committed files.
package boardtest
