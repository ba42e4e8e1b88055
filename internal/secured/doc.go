// Package secured runs weir on servers that let in only whom they know: several brokers of Apache Kafka, redis-server and PostgreSQL, all with
// TLS, each process of weir as a user of its own, with the rights that docs/security.md gives it and no others. It has tests only.
package secured
