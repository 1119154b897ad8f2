// Command words finds the words of a private dialect in what readers read: the comments and strings
// of Go files, pages, scripts and manifests.
//
//	words ROOT         lists each use of a word that has no place here, and fails if there is one
//	words -list ROOT   lists those that are only counted, too
//	words -count ROOT  counts comment lines of Go files by kinds of words, per thousand lines
//
// Generated files, the files below testdata, of the vectors' data and of this command, and the script that
// has the same words for commits are left out,
// and the strings of the vectors' generators, which are bytes of published files.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A kind is a group of words, and what to write in their place.
type kind struct {
	name    string
	words   *regexp.Regexp
	instead string
	refused bool
}

var kinds = []kind{
	{"nobody, whoever, somebody, anybody", regexp.MustCompile(`(?i)\b(nobody|whoever|somebody|anybody)\b`),
		"name the actor: the API server, the caller, an administrator", true},
	{"is none, counts for nothing", regexp.MustCompile(`(?i)\b(is|are|was|were) none\b|\bcounts? for nothing\b`), "say what is missing, or not accepted", true},
	{"beside", regexp.MustCompile(`(?i)\bbesides?\b`), "next to, with, or in addition to", true},
	{"what is, what was, what the ... as a noun", regexp.MustCompile(`(?i)\bwhat (is|are|was|were|has|had|a|an|the|it|they|this|that|he)\b`), "name the thing", false},
	{"those of, those that", regexp.MustCompile(`(?i)\bthose (of|that|which|who)\b`), "name the things", false},
}

// pythonNone is a comparison of Python's.
var pythonNone = regexp.MustCompile(`\bis None\b`)

// generators are the files with bytes and names of the vectors.
var generators = regexp.MustCompile(`^test/vectors/|^test/clouds/|^cloud/\w+/vectors?\w*_test\.go`)

// A line is a comment, a string or a line of a page, and where it stands.
type line struct {
	at      string
	text    string
	comment bool
}

func main() {
	count := flag.Bool("count", false, "count comment lines by kinds of words")
	list := flag.Bool("list", false, "list the words that are only counted, too")
	flag.Parse()
	if err := run(os.Stdout, flag.Arg(0), *count, *list); err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(1)
	}
}

// run is main with its output and folder.
func run(out io.Writer, root string, count, list bool) error {
	lines, err := read(root)
	if err != nil {
		return err
	}
	if count {
		return counts(out, lines)
	}
	found := 0
	for _, l := range lines {
		if !l.comment && generators.MatchString(l.at) {
			continue
		}
		for _, k := range kinds {
			if word := k.words.FindString(l.text); (k.refused || list && l.comment) && word != "" {
				found++
				fmt.Fprintf(out, "%s: %q: %s\n", l.at, word, k.instead)
			}
		}
	}
	if found > 0 {
		return fmt.Errorf("%d lines to write in other words", found)
	}
	return nil
}

// counts prints for each kind of words how many comment lines have one.
func counts(out io.Writer, lines []line) error {
	lines = slices.DeleteFunc(lines, func(l line) bool { return !l.comment })
	fmt.Fprintf(out, "%d comment lines\n", len(lines))
	for _, k := range kinds {
		n := 0
		for _, l := range lines {
			if k.words.MatchString(l.text) {
				n++
			}
		}
		fmt.Fprintf(out, "%-45s %5d lines, %5.1f per thousand\n", k.name, n, 1000*float64(n)/float64(max(len(lines), 1)))
	}
	return nil
}

// read reads the lines of all files below root that people read.
func read(root string) (lines []line, err error) {
	return lines, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		rel, _ := filepath.Rel(root, path)
		switch rel = filepath.ToSlash(rel); {
		case err != nil:
			return err
		case entry.IsDir():
			if name == "testdata" || strings.HasPrefix(name, ".") && path != root || rel == "tools/words" || rel == "vectors/data" || rel == "vectors/cloud" {
				return filepath.SkipDir
			}
			return nil
		case strings.HasPrefix(name, "zz_generated") || rel == "vectors/INDEX.md" || rel == "vectors/attacks.md", rel == "scripts/commits.sh":
			return nil
		}
		switch filepath.Ext(name) {
		case ".go", ".md", ".sh", ".yaml", ".yml", ".service", ".conf", ".txt", ".py":
		default:
			if name != "Makefile" {
				return nil
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if filepath.Ext(name) == ".go" {
			lines = append(lines, ofGo(rel, text)...)
			return nil
		}
		lines = append(lines, ofText(rel, text)...)
		return nil
	})
}

// ofText returns each line of a file that is not Go.
func ofText(name string, text []byte) (lines []line) {
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(nil, len(text)+1)
	for n := 1; s.Scan(); n++ {
		lines = append(lines, line{at: fmt.Sprintf("%s:%d", name, n), text: pythonNone.ReplaceAllString(s.Text(), "")})
	}
	return lines
}

// ofGo returns the comments and strings of a Go file, a line each.
func ofGo(name string, text []byte) (lines []line) {
	var s scanner.Scanner
	files := token.NewFileSet()
	file := files.AddFile(name, -1, len(text))
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		if tok != token.COMMENT && tok != token.STRING {
			continue
		}
		first := file.Line(pos)
		for i, part := range strings.Split(literal, "\n") {
			lines = append(lines, line{fmt.Sprintf("%s:%d", name, first+i), part, tok == token.COMMENT})
		}
	}
}
