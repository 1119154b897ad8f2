package nitro

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
	"github.com/nodeattest/nodeattest/refusal"
)

// checkTPM: the NitroTPM gave no document, or not the one requested.
const checkTPM refusal.Check = "nitro-tpm"

// SourceConfig configures a [Source].
type SourceConfig struct {
	// Ask asks the instance's NitroTPM for a document over a nonce and user data, each nil if it
	// is absent. It is required: [Tool] returns one. The TPM has a vendor command for this
	// (TPM_CC 0x20000001), whose request and response pass through an NV index. go-tpm does
	// not send vendor commands.
	Ask func(ctx context.Context, nonce, userData []byte) ([]byte, error)
}

// Source queries the NitroTPM of the instance that it runs on, for [document.NewProver]. It is
// safe for concurrent use if Ask is.
type Source struct {
	ask func(ctx context.Context, nonce, userData []byte) ([]byte, error)

	mu      sync.Mutex
	machine attest.Identity // once it is known: no process moves to another instance
}

// NewSource makes a source. The error matches [refusal.CheckConfig].
func NewSource(config SourceConfig) (*Source, error) {
	if config.Ask == nil {
		return nil, refusal.Config("Ask", "", "a function, such as that of Tool")
	}
	return &Source{ask: config.Ask}, nil
}

// NewProver is the node's side of this kind of evidence. The error matches
// [refusal.CheckConfig].
func NewProver(config SourceConfig) (*document.Prover, error) {
	s, err := NewSource(config)
	if err != nil {
		return nil, err
	}
	return document.NewProver(Provider, 1, s)
}

// Machine asks once for a document over nothing, for the names in it. The error is an
// [*attest.Error] with the check "nitro-tpm".
func (s *Source) Machine(ctx context.Context) (attest.Identity, error) {
	if s == nil || s.ask == nil {
		return "", checkTPM.Refuse("no source", "one of NewSource")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.machine != "" {
		return s.machine, nil
	}
	_, d, err := s.document(ctx, nil, nil)
	if err != nil {
		return "", err
	}
	s.machine = d.Identity()
	return s.machine, nil
}

// Document asks for a document over a value of 32 bytes and the user data of this
// kind. The error is an [*attest.Error] with the check "nitro-tpm".
func (s *Source) Document(ctx context.Context, value []byte) ([]byte, error) {
	if s == nil || s.ask == nil {
		return nil, checkTPM.Refuse("no source", "one of NewSource")
	}
	if len(value) != sha256.Size {
		return nil, checkNonce.Refuse(strconv.Itoa(len(value))+" bytes", strconv.Itoa(sha256.Size))
	}
	data, d, err := s.document(ctx, value, []byte(userData))
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(d.Nonce, value) || string(d.UserData) != userData {
		return nil, checkTPM.Refuse("a document over another nonce or user data", "one over the given ones")
	}
	return data, nil
}

func (s *Source) document(ctx context.Context, nonce, userData []byte) ([]byte, *Document, error) {
	data, err := s.ask(ctx, nonce, userData)
	if err != nil {
		return nil, nil, &refusal.Error{Check: checkTPM, Got: "no document", Want: "one", Err: err}
	}
	d, err := parseInsecure(data)
	if err != nil {
		return nil, nil, &refusal.Error{Check: checkTPM, Got: "a bad document", Want: "that of a NitroTPM", Err: err}
	}
	return data, d, nil
}

// defaultTool is the name of AWS' program that queries the NitroTPM (NitroTPM-Tools).
const defaultTool = "nitro-tpm-attest"

const (
	toolTimeout = time.Minute
	maxToolText = 1 << 10
)

// Tool returns a function for [SourceConfig].Ask that runs AWS' program, or another one that
// takes its arguments:
//
//	nitro-tpm-attest [--nonce FILE] [--user-data FILE]
//
// and writes the document to its standard output. It is found by path, or in PATH if that is a
// bare name; "" means nitro-tpm-attest. It needs permission to use /dev/tpm0, or the device
// that its variable TPM_DEVICE names, and has a minute. The files are in a folder of their own,
// which is removed.
func Tool(path string) func(ctx context.Context, nonce, userData []byte) ([]byte, error) {
	path = cmp.Or(path, defaultTool)
	return func(ctx context.Context, nonce, userData []byte) (data []byte, err error) {
		ctx, cancel := context.WithTimeout(ctx, toolTimeout)
		defer cancel()
		folder, err := os.MkdirTemp("", "nodeattest-nitro-")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
		var arguments []string
		for _, f := range []struct {
			flag string
			data []byte
		}{{"nonce", nonce}, {"user-data", userData}} {
			if f.data == nil {
				continue
			}
			name := filepath.Join(folder, f.flag)
			if err := os.WriteFile(name, f.data, 0o600); err != nil {
				return nil, err
			}
			arguments = append(arguments, "--"+f.flag, name)
		}
		out, said := &limited{most: maxDocumentSize}, &limited{most: maxToolText}
		command := exec.CommandContext(ctx, path, arguments...)
		command.Stdout, command.Stderr, command.WaitDelay = out, said, time.Second
		if err := command.Run(); err != nil {
			if ended := ctx.Err(); ended != nil {
				err = ended // not that the program was killed
			}
			return nil, &refusal.Error{Check: checkTPM, Got: path + " that failed: " + refusal.Quote(string(said.kept)), Err: err}
		}
		return out.kept, nil
	}
}

// limited keeps the first bytes that are written to it. Of a longer document it keeps one
// byte more, so that the excess is noticed. It is not a bytes.Buffer, which reads to the end.
type limited struct {
	kept []byte
	most int
}

// Write keeps what fits.
func (l *limited) Write(b []byte) (int, error) {
	l.kept = append(l.kept, b[:min(len(b), l.most+1-len(l.kept))]...)
	return len(b), nil
}
