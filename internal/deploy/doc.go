// Package deploy holds docker-compose.yml, the Dockerfile and the files below deploy/ to their word on a machine without a
// container engine: it starts the real program of every service with exactly the files that the service mounts, and walks
// through docs/deploy.md on them. There is nothing here but tests.
//
// Three things are changed on the way into a file or a command line, all in site_test.go: an address of a service (its name,
// or loopback or every address, with a port) becomes a free port of loopback; a path that the service mounts becomes the
// folder of the test that stands for it; and Docker's name server, in the files of nginx, becomes one of the test that knows
// the services that run. There names stay names, and only their ports are changed.
package deploy
