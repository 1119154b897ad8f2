package kube

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
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
	defer moreWatchers()()
	return m.Run()
}

// moreWatchers raises the number of inotify instances that a user may have, 128 by default, if the tests are
// run by root: kubelets, systemds and API servers that run at once need more, and fail without a clear word.
// It returns a function that takes it back.
func moreWatchers() (takeBack func()) {
	const file, enough = "/proc/sys/fs/inotify/max_user_instances", 1024
	before, err := os.ReadFile(file)
	if n, notNumber := strconv.Atoi(strings.TrimSpace(string(before))); err != nil || notNumber != nil || n >= enough || os.Getuid() != 0 {
		return func() {}
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(enough)), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "kubelets may fail:", err)
		return func() {}
	}
	return func() { _ = os.WriteFile(file, before, 0o644) }
}
