package controlplane

import (
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig writes the file with which a program connects to a cluster as a user, and returns its path.
func Kubeconfig(t testing.TB, dir, file string, cluster *api.Cluster, user *api.AuthInfo) string {
	t.Helper()
	config := api.NewConfig()
	config.Clusters["c"], config.AuthInfos["u"] = cluster, user
	config.Contexts["x"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return Write(t, dir, file, text)
}
