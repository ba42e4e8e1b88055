// Command testreport reads the events of `go test -json` and prints what `go test` would: the output of what failed and
// a line per package. It then counts how many tests ran on which kind of server, from the file that WEIR_TEST_REPORT
// names (internal/testbed writes it), repeats why tests failed without the logs of what they ran, and ends with the package lines once more.
//
//	go test -json ./... | testreport [-whole] [-real] [-title TEXT] [-earlier FILE]
//
// With -whole it fails where a test was skipped. With -real, which is for runs against real servers, it does so, too, and where a kind of server
// saw no test, or a package that had an embedded one in the run of -earlier did not run.
// Only a test that touched no server may be skipped then, and only where the user that runs it may not do what it needs:
// its reason begins with "unprivileged:", and is printed.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"time"
)

func main() {
	real := flag.Bool("real", false, "fail where a test was skipped, a kind of server saw no test, or a package of -earlier none of the servers that it uses")
	whole := flag.Bool("whole", false, "fail where a test was skipped")
	title := flag.String("title", "tests", "name of the run, for the heading of the counts")
	earlier := flag.String("earlier", "", "report file of an earlier run, to be counted too")
	flag.Parse()
	ok, err := run(*title, *real, *whole || *real, *earlier)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(title string, real, whole bool, earlier string) (ok bool, err error) {
	start := time.Now()
	results, err := follow(os.Stdin, os.Stdout)
	if err != nil {
		return false, err
	}
	uses, err := readUses(os.Getenv("WEIR_TEST_REPORT"))
	if err != nil {
		return false, err
	}
	all, err := readUses(earlier)
	if err != nil {
		return false, err
	}
	unseen := all.unseen(uses)
	maps.Copy(all, uses)
	fmt.Printf("\n%s: %d passed, %d failed, %d skipped in %v\n", title, results.passed, results.failed,
		len(results.skipped), time.Since(start).Round(time.Second))
	all.print(os.Stdout)
	results.printTimes(os.Stdout)
	var complaints []string
	if real {
		complaints = append(append(complaints, uses.untouched()...), unseen...)
	}
	for _, skip := range results.skipped {
		switch {
		case whole && (!skip.unprivileged() || uses.touched(skip.Package, skip.Test)):
			complaints = append(complaints, fmt.Sprintf("%s %s was skipped: %s", skip.Package, skip.Test, skip.reason))
		default:
			fmt.Printf("  skipped: %s %s: %s\n", skip.Package, skip.Test, skip.reason)
		}
	}
	results.printFailures(os.Stdout)
	for _, complaint := range complaints {
		fmt.Println("FAIL:", complaint)
	}
	fmt.Println()
	for _, line := range results.lines {
		fmt.Print(line)
	}
	return !results.broken && len(complaints) == 0, nil
}
