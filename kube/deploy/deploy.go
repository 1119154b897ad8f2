// Package deploy contains the manifests of the module, for programs and tests that apply them.
// Administrators apply the folder: kubectl apply -k.
package deploy

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
)

//go:embed crd/*.yaml rbac.yaml boundtokens/rbac.yaml clouds/rbac.yaml signer/rbac.yaml serving/rbac.yaml insecure/*.yaml bootstrap/*.yaml clusterapi/rbac.yaml clusterapi-signer/rbac.yaml enforce/admission.yaml enforce/approval.yaml operator.yaml publisher.yaml admission.yaml approval.yaml records.yaml observe.yaml config.yaml
//go:embed clusterapi-pools-nodes/pools.yaml clusterapi-pools-nodes/rbac.yaml clusterapi-pool-tokens-nodes/rbac.yaml clusterapi-pool-tokens-nodes/admission.yaml
var files embed.FS

// Manifests returns the objects in the files of the folder that match a pattern (path.Match),
// such as "rbac.yaml" or "crd/*.yaml", in the order of the file names; from "config.yaml" it is
// the configuration file of the programs, as it is shipped. enforce/*.yaml are the bindings of the
// admission policies where attestation is enforced. "insecure/approval.yaml" is
// approval.yaml as the component insecure changes it. Those of clusterapi and clusterapi-signer have
// ${CLUSTER_NAME} and ${NAMESPACE} in the place of a Cluster's. No match is an error.
func Manifests(pattern string) ([][]byte, error) {
	if pattern == insecureApproval {
		return insecurePolicies()
	}
	names, err := fs.Glob(files, pattern)
	if err == nil && len(names) == 0 {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("deploy: %s: %w", pattern, err)
	}
	var manifests [][]byte
	for _, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, bytes.Split(text, []byte("\n---\n"))...)
	}
	return manifests, nil
}
