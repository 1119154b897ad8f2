// Package deploy contains the manifests of the module, for programs and tests that apply them
// themselves. People apply the folder: kubectl apply -k.
package deploy

import (
	"bytes"
	"embed"
	"io/fs"
)

//go:embed crd/*.yaml rbac.yaml clouds-rbac.yaml signer/rbac.yaml operator.yaml admission.yaml config.yaml
var files embed.FS

// CRDs returns the manifests of the custom resource definitions, one per file, in the order of
// the file names.
func CRDs() ([][]byte, error) { return read("crd/*.yaml") }

// RBAC returns the manifests of what the controller may do, one object each: its namespace
// and service account, roles and bindings.
func RBAC() ([][]byte, error) { return objects("rbac.yaml") }

// CloudsRBAC returns the manifests of what the controller may do in addition to its own rules
// if nodes present documents of clouds, one object each.
func CloudsRBAC() ([][]byte, error) { return objects("clouds-rbac.yaml") }

// SignerRBAC returns the manifests of what the signer may do, and of what the controller may
// do in addition to its own rules if the signer runs, one object each.
func SignerRBAC() ([][]byte, error) { return objects("signer/rbac.yaml") }

// Admission returns the manifests of the admission policy, one object each.
func Admission() ([][]byte, error) { return objects("admission.yaml") }

// Operator returns the manifests of what kubectl nodeattest needs, one object each.
func Operator() ([][]byte, error) { return objects("operator.yaml") }

// Config returns the configuration file of the programs, as it is shipped.
func Config() ([]byte, error) { return files.ReadFile("config.yaml") }

// objects returns the manifests in a file.
func objects(name string) ([][]byte, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return bytes.Split(text, []byte("\n---\n")), nil
}

func read(pattern string) ([][]byte, error) {
	names, err := fs.Glob(files, pattern)
	if err != nil {
		return nil, err
	}
	manifests := make([][]byte, 0, len(names))
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, text)
	}
	return manifests, nil
}
