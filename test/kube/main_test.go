package kube

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"testing"
)

// atOnce is how many tests run at once, if -parallel does not say. They mostly wait, and
// each has a control plane of its own, which takes under 1 GB.
const atOnce = 5

// programs is the folder of the commands that tests have built.
var programs string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	err := error(nil)
	if !chosen {
		err = flag.Set("test.parallel", strconv.Itoa(atOnce))
	}
	if err == nil {
		programs, err = os.MkdirTemp("", "nodeattest-programs-")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(programs)
	return m.Run()
}
