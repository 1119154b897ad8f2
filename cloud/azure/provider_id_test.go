package azure

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestProviderID(t *testing.T) {
	server := cloudtest.NewAzure(t, cloudtest.AzureOptions{}).Serve(machine("1"))
	defer server.Close()
	server.Fail(http.StatusGone, 1) // it is asked again
	got, err := testSource(t, server.URL, nil).ProviderID(t.Context())
	if want := "azure:///subscriptions/" + testSubscription + "/resourceGroups/example-rg/providers/Microsoft.Compute/virtualMachines/vm-1"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

// The letters are as the cloud provider writes them; another resource is refused by
// its name.
func TestProviderIDOfResources(t *testing.T) {
	const (
		sub   = "/subscriptions/" + testSubscription
		group = sub + "/resourceGroups/MC_Example"
		vm    = group + "/providers/Microsoft.Compute/virtualMachines/"
	)
	for name, c := range map[string]struct {
		resource, want string
		subscription   string // "": the right one
	}{
		"a machine":                    {vm + "VM-1", "azure://" + strings.Replace(vm, "MC_E", "mc_e", 1) + "VM-1", ""},
		"all in capitals":              {strings.ToUpper(vm) + "VM-1", "azure:///SUBSCRIPTIONS/" + testSubscription + "/RESOURCEGROUPS/mc_example/PROVIDERS/MICROSOFT.COMPUTE/VIRTUALMACHINES/VM-1", ""},
		"the subscription in capitals": {vm + "VM-1", "azure://" + strings.Replace(vm, "MC_E", "mc_e", 1) + "VM-1", strings.ToUpper(testSubscription)},
		"of a scale set":               {group + "/providers/Microsoft.Compute/virtualMachineScaleSets/Pool/virtualMachines/0", "azure://" + sub + "/resourceGroups/mc_example/providers/Microsoft.Compute/virtualMachineScaleSets/Pool/virtualMachines/0", ""},
		"nothing":                      {},
		"of another subscription":      {vm + "vm-1", "", "00000000-b25a-417f-a676-80465535a6c9"},
		"of no subscription":           {vm + "vm-1", "", "x"},
		"no name":                      {resource: vm},
		"no group":                     {resource: strings.Replace(vm, "MC_Example", "", 1) + "vm-1"},
		"more behind it":               {resource: vm + "vm-1/extensions/x"},
		"a scale set":                  {resource: group + "/providers/Microsoft.Compute/virtualMachineScaleSets/pool"},
		"a disk":                       {resource: group + "/providers/Microsoft.Compute/disks/vm-1"},
		"of another provider":          {resource: strings.Replace(vm, "Microsoft.Compute", "Example.Compute", 1) + "vm-1"},
		"no slash in front":            {resource: vm[1:] + "vm-1"},
		"a NUL":                        {resource: vm + "vm-1\x00"},
		"a line's end":                 {resource: vm + "vm-1\n"},
		"text that runs backwards":     {resource: vm + "\u202evm-1"},
		"longer than any":              {resource: vm + strings.Repeat("v", 1024)},
	} {
		t.Run(name, func(t *testing.T) {
			subscription := c.subscription
			if subscription == "" {
				subscription = testSubscription
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				json.NewEncoder(w).Encode(map[string]string{"resourceId": c.resource, "subscriptionId": subscription})
			}))
			defer server.Close()
			got, err := testSource(t, server.URL, nil).ProviderID(t.Context())
			if got != c.want || (err == nil) != (c.want != "") {
				t.Fatalf("got %q, %v, want %q", got, err, c.want)
			}
			if err != nil && (!errors.Is(err, metadata.CheckMetadata) || errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "resourceId") || strings.ContainsAny(err.Error(), "\x00\n\u202e")) {
				t.Errorf("%q", err)
			}
		})
	}
}

// Answers without the resource, and a service that is away, name no machine.
func TestProviderIDOfNothing(t *testing.T) {
	for body, retry := range map[string]bool{`{"subscriptionId":"` + testSubscription + `"}`: false, `{"resourceId":7,"subscriptionId":""}`: false, "<html>": false, "": true} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if retry {
				w.WriteHeader(http.StatusTooManyRequests)
			}
			_, _ = w.Write([]byte(body))
		}))
		defer server.Close()
		timeout := time.Duration(0)
		if retry { // it is asked until then
			timeout = 120 * time.Millisecond
		}
		s := testkit.Must(NewSource(SourceOptions{URL: server.URL, Timeout: timeout}))
		if got, err := s.ProviderID(t.Context()); got != "" || !errors.Is(err, metadata.CheckMetadata) || errors.Is(err, refusal.ErrRetry) != retry {
			t.Errorf("%q: got %q, %v", body, got, err)
		}
	}
}
