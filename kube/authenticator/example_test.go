package authenticator_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nodeattest/nodeattest/attest/tpm"
	"github.com/nodeattest/nodeattest/kube/authenticator"
	"github.com/nodeattest/nodeattest/refusal"
)

// A node with a TPM, set up as kubelet-authenticator does it: its status before it has
// joined, and the plugin's error for a kubelet that would bypass it.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	kubelet := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(kubelet, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nrotateCertificates: true\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	ek := tpm.EKRSA2048()
	a, err := authenticator.New(authenticator.Config{
		NodeName: "node-1",
		Dir:      filepath.Join(dir, "state"),
		API: func() (*rest.Config, error) {
			return clientcmd.BuildConfigFromFlags("", "/etc/kubernetes/kubelet-authenticator.conf")
		},
		Kind: &authenticator.TPM{
			Path: "/dev/tpmrm0", PersistentEK: 0x81010001,
			AK:      tpm.AKSource{Template: tpm.AKTemplateECDSAP256()},
			Options: tpm.ProverOptions{EK: &ek},
		},
		Kubelet: authenticator.Kubelet{ConfigFile: kubelet},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("usable:", a.Status().Usable)
	_, err = a.Credential(context.Background())
	fmt.Println("refused:", errors.Is(err, refusal.Check("kubelet-configuration")))
	// Output:
	// usable: false
	// refused: true
}
