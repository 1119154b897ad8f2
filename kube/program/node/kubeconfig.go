package node

import (
	"cmp"
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/refusal"
)

// readKubeconfig reads a kubeconfig's current context, and the files that it names. No error contains a
// proxy's password.
func readKubeconfig(path string) (*rest.Config, error) {
	text, err := readFile(path, configfile.MaxSize)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load(text)
	if err == nil {
		err = clientcmdapi.MinifyConfig(config)
	}
	if err != nil {
		return nil, &refusal.Error{Check: refusal.CheckConfig, Got: "an invalid kubeconfig " + path, Err: err}
	}
	dir := filepath.Dir(path)
	for _, c := range config.Clusters {
		if err := checkProxy(c.ProxyURL); err != nil {
			return nil, err
		}
		if err := inline(dir, &c.CertificateAuthority, &c.CertificateAuthorityData); err != nil {
			return nil, err
		}
	}
	for _, user := range config.AuthInfos {
		var token []byte
		if err := errors.Join(inline(dir, &user.ClientCertificate, &user.ClientCertificateData), inline(dir, &user.ClientKey, &user.ClientKeyData), inline(dir, &user.TokenFile, &token)); err != nil {
			return nil, err
		}
		user.Token = cmp.Or(strings.TrimSpace(string(token)), user.Token)
	}
	return clientcmd.NewDefaultClientConfig(*config, new(clientcmd.ConfigOverrides)).ClientConfig()
}

// checkProxy refuses an invalid address, whose password net/http's errors would contain.
func checkProxy(proxy string) error {
	if u, err := url.Parse(proxy); err != nil || proxy != "" && !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return refusal.Config("proxy-url of the kubeconfig", "an invalid address", "a URL of http, https or socks5")
	}
	return nil
}

// inline replaces the path of a file by its contents. Inline data has precedence, as for kubectl.
func inline(dir string, file *string, data *[]byte) (err error) {
	path := *file
	*file = ""
	if path == "" || len(*data) != 0 {
		return nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	*data, err = readFile(path, configfile.MaxSize)
	return err
}
