// Command install renders kube/deploy, by kustomize, for kubectl apply:
//
//	install [-component enforce]... kube/deploy >install.yaml
//
// A component is a folder of kube/deploy. The output is that of kubectl kustomize, so the same folder gives the same
// bytes.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "install: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("install", flag.ContinueOnError)
	flags.SetOutput(stderr)
	var components []string
	flags.Func("component", "a `folder` of kube/deploy; may be repeated", func(name string) error {
		components = append(components, name)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("give one folder")
	}
	text, err := render(flags.Arg(0), components)
	if err != nil {
		return err
	}
	_, err = stdout.Write(text)
	return err
}

// render returns the objects of a folder with components, in the order of kubectl kustomize.
func render(folder string, components []string) ([]byte, error) {
	above, err := os.MkdirTemp("", "install-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(above)
	base, err := relative(above, folder)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "resources: [%s]\ncomponents:\n", base)
	for _, name := range components {
		fmt.Fprintf(&text, "  - %s/%s\n", base, name)
	}
	if err = os.WriteFile(filepath.Join(above, "kustomization.yaml"), text.Bytes(), 0o600); err != nil {
		return nil, err
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	objects, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), above)
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}

// relative is the path of a folder from another one: a kustomization takes no absolute paths.
func relative(from, folder string) (string, error) {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return "", err
	}
	if folder, err = filepath.Abs(folder); err == nil {
		folder, err = filepath.EvalSymlinks(folder)
	}
	if err != nil {
		return "", err
	}
	return filepath.Rel(from, folder)
}
