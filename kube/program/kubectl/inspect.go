package kubectl

import (
	"context"
	"fmt"

	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/kube/program/kubectl/internal/inspect"
	"github.com/nodeattest/nodeattest/refusal"
)

// inspect shows files. The exit status is 1 if something in them could not be read.
func (p *plugin) inspect(_ context.Context, names []string) error {
	var end error
	for _, name := range names {
		input, err := p.read(name, inspect.MaxSize)
		if err != nil {
			return err
		}
		faults, err := inspect.Show(p.out, name, input, p.kinds)
		if err != nil {
			return err
		}
		for _, fault := range faults {
			fmt.Fprintf(p.err, "%s: %s\n", refusal.Escape(name), fault)
			end = exitStatus(1)
		}
	}
	return end
}

// read reads a file of at most a number of bytes; - is standard input.
func (p *plugin) read(name string, most int64) ([]byte, error) {
	if name == "-" {
		return files.ReadAll(p.in, name, most)
	}
	return files.Read(name, most)
}
