package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// append appends the result to a file, as a line of JSON.
func (r *result) append(file string) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = out.Write(append(line, '\n'))
	return errors.Join(err, out.Close())
}

// readResults reads such a file.
func readResults(file string) (all []*result, err error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		r := new(result)
		if err := json.Unmarshal(lines.Bytes(), r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, r)
	}
	return all, lines.Err()
}

// The table stands between these lines of the page.
const tableBegin, tableEnd = "<!-- go run -C test/size . writes this table -->\n", "<!-- end of the table -->\n"

// writePages writes the table and the curves of a file of results.
func writePages(file, folder string) error {
	all, err := readResults(file)
	if err != nil {
		return err
	}
	m := newest(all)
	if len(m.sizes()) == 0 {
		return fmt.Errorf("%s has no results", file)
	}
	page := filepath.Join(folder, "benchmarks.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(text), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !found || !ends {
		return fmt.Errorf("%s has no place for the table: the lines %q and %q", page, tableBegin, tableEnd)
	}
	if err := os.WriteFile(page, []byte(before+tableBegin+"\n"+m.table()+"\n"+tableEnd+after), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "size.svg"), []byte(m.curves(all[len(all)-1].Machine)), 0o644)
}

// machine is the name of the processor, and how many cores this machine has of it.
func machine() string {
	name := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				name = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores", name, runtime.NumCPU())
}
