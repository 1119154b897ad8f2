// Command notices writes what must go with programs that are given to others: into a folder, the
// file THIRD_PARTY with the licence and notice of every module in them, and sbom.cdx.json, their
// bill of materials (CycloneDX 1.6). Both come from the go command's records in the
// programs; the same programs give the same bytes.
//
//	notices -o FOLDER PROGRAM...
package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// own is the path of our modules, which are under LICENSE and not under a third party's.
const own = "github.com/nodeattest/nodeattest"

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "notices: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("notices", flag.ContinueOnError)
	flags.SetOutput(stderr)
	folder := flags.String("o", "", "the `folder` to write to")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || *folder == "" {
		return errors.New("no program, or no folder")
	}
	modules, goVersion, err := modulesOf(flags.Args())
	if err != nil {
		return err
	}
	texts, err := thirdParty(modules, folderOf)
	if err != nil {
		return err
	}
	var bill bytes.Buffer
	encoder := cdx.NewBOMEncoder(&bill, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.Encode(billOf(modules, goVersion)); err != nil {
		return err
	}
	if err := os.MkdirAll(*folder, 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(*folder, "THIRD_PARTY"), texts, 0o644),
		os.WriteFile(filepath.Join(*folder, "sbom.cdx.json"), bill.Bytes(), 0o644))
}

// A module is one that is linked into a program.
type module struct{ path, version string }

// modulesOf returns the modules of programs, each once and sorted, and the Go release that
// built the first.
func modulesOf(programs []string) (modules []module, goVersion string, err error) {
	seen := map[module]bool{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", program, err)
		}
		goVersion = cmp.Or(goVersion, info.GoVersion)
		seen[module{info.Main.Path, info.Main.Version}] = true
		for _, m := range info.Deps {
			// A module that is replaced by a folder keeps its own path.
			if r := m.Replace; r != nil && !filepath.IsAbs(r.Path) && !strings.HasPrefix(r.Path, ".") {
				m = r
			}
			seen[module{m.Path, m.Version}] = true
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b module) int {
		return cmp.Or(strings.Compare(a.path, b.path), strings.Compare(a.version, b.version))
	}), goVersion, nil
}

// third reports whether others wrote a module.
func (m module) third() bool { return m.path != own && !strings.HasPrefix(m.path, own+"/") }

// licence matches the names of files that a distribution must carry.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|copyright|notice|patents)([._-].*)?$`)

// thirdParty returns the licences and notices of modules and of Go itself, whose runtime and
// standard library are in every program. A module without one is an error: it must not be distributed.
func thirdParty(modules []module, folderOf func(module) (string, error)) ([]byte, error) {
	var out bytes.Buffer
	add := func(title, folder string) error {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		found := false
		for _, e := range entries {
			if e.IsDir() || !licence.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(folder, e.Name()))
			if err != nil {
				return err
			}
			found = true
			fmt.Fprintf(&out, "==== %s: %s\n\n%s\n", title, e.Name(), bytes.TrimSpace(text))
		}
		if !found {
			return fmt.Errorf("%s: no licence in %s", title, folder)
		}
		return nil
	}
	goRoot, err := goCommand("env", "GOROOT")
	if err == nil {
		err = add("Go", strings.TrimSpace(string(goRoot)))
	}
	for _, m := range modules {
		if err != nil {
			return nil, err
		}
		if !m.third() {
			continue
		}
		var folder string
		if folder, err = folderOf(m); err == nil {
			err = add(m.path+" "+m.version, folder)
		}
	}
	return out.Bytes(), err
}

// folderOf returns where the go command keeps a module's source, which it fetches if needed.
func folderOf(m module) (string, error) {
	out, err := goCommand("mod", "download", "-json", m.path+"@"+m.version)
	if err != nil {
		return "", err
	}
	var got struct{ Dir string }
	if err := json.Unmarshal(out, &got); err != nil {
		return "", fmt.Errorf("go mod download: %w", err)
	}
	return got.Dir, nil
}

func goCommand(args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// billOf returns the bill of materials, without a date and a serial number.
func billOf(modules []module, goVersion string) *cdx.BOM {
	components := []cdx.Component{component(module{"std", strings.TrimPrefix(goVersion, "go")})}
	for _, m := range modules {
		components = append(components, component(m))
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{Type: cdx.ComponentTypeApplication, Name: "nodeattest"}}
	bom.Components = &components
	return bom
}

func component(m module) cdx.Component {
	// (devel) and an empty version stand for sources without a release.
	version := strings.Trim(m.version, "()")
	url := "pkg:golang/" + m.path
	if version != "" {
		url += "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: m.path, Version: version, PackageURL: url}
}
