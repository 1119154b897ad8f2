// Package kubeadmpatch is the command that makes, of kube-apiserver's manifest, a patch for kubeadm's
// --patches with which kube-apiserver signs at an external signer.
package kubeadmpatch

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/nodeattest/nodeattest/refusal"
)

const (
	name = "external-jwt-signer kubeadm-patch"

	// defaultSocket is the program's default, too.
	defaultSocket = "/run/external-jwt-signer/socket"

	// maxSize is the maximum length of a manifest in bytes. kubeadm's have 4 KiB.
	maxSize = 1 << 18
)

// Run runs the command on the arguments after its name, and returns the exit status: 0, 1 after an error,
// 2 after a wrong command line.
func Run(args []string, stdout, stderr io.Writer) int {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(stderr)
	set.Usage = func() {
		fmt.Fprintf(stderr, "%s [--socket PATH] MANIFEST\n\nprints a patch for kubeadm's --patches, with which kube-apiserver signs at the socket. MANIFEST is\n"+
			"kube-apiserver's, as kubeadm rendered it without the patch.\n\n", name)
		set.PrintDefaults()
	}
	socket := set.String("socket", defaultSocket, "the signer's socket, whose folder is mounted into kube-apiserver's `path`")
	switch err := set.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case set.NArg() != 1:
		set.Usage()
		return 2
	}
	patch, err := patchOf(set.Arg(0), *socket)
	if err == nil {
		_, err = stdout.Write(patch)
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s: %s\n", name, refusal.Escape(err.Error()))
		return 1
	}
	return 0
}

// patchOf makes the patch of a manifest in a file.
func patchOf(path, socket string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: got %s, want a regular file", path, info.Mode())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(text) > maxSize {
		err = fmt.Errorf("more than %d bytes", maxSize)
	}
	var patch []byte
	if err == nil {
		patch, err = makePatch(text, socket)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return patch, nil
}
