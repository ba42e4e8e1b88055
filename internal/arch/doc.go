// Package arch holds the floor plan of the repository and its habits as tests. Each rule says why it exists when it is
// broken; whoever finds a better reason changes the rule here, in the same commit as the code.
package arch
