package azure

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/oid"
	"github.com/nodeattest/nodeattest/refusal"
)

// ProviderID asks for the ID of the machine's resource, and returns the provider ID that
// Kubernetes' cloud provider gives the machine's Node: azure:// and that ID, with the subscription
// and the resource group in lower case. It is only the node's claim: whatever poses as the
// service can say something else, and no document has more of it than the subscription. The error
// is an [*attest.Error] with the check "metadata-server".
func (s *Source) ProviderID(ctx context.Context) (string, error) {
	body, err := s.ask(ctx, "/metadata/instance/compute", "&format=json", maxInstanceSize)
	if err != nil {
		return "", err
	}
	var resource, subscription string
	err = strictjson.Fields{"resourceId": strictjson.Into(&resource), "subscriptionId": strictjson.Into(&subscription)}.Parse(body)
	if err != nil {
		return "", unusable("a bad answer about the machine", err)
	}
	id, err := providerID(resource, subscription)
	if err != nil {
		return "", unusable("resourceId "+refusal.Quote(resource)+" of subscriptionId "+refusal.Quote(subscription), err)
	}
	return id, nil
}

var errNoMachine = errors.New("not a virtual machine of that subscription, single or in a scale set")

// providerID is the provider ID of the virtual machine that a resource ID names. What Azure spells in
// capitals here and in small letters there has no case.
func providerID(resource, subscription string) (string, error) {
	parts := strings.Split(resource, "/")
	named := func(at int, name string) bool { return at < len(parts) && strings.EqualFold(parts[at], name) }
	of := named(0, "") && named(1, "subscriptions") && named(2, subscription) && named(3, "resourceGroups") &&
		named(5, "providers") && named(6, "Microsoft.Compute")
	single := len(parts) == 9 && named(7, "virtualMachines")
	scaled := len(parts) == 11 && named(7, "virtualMachineScaleSets") && named(9, "virtualMachines")
	if !of || !single && !scaled || !validUUID(strings.ToLower(subscription)) || slices.Contains(parts[1:], "") {
		return "", errNoMachine
	}
	parts[2], parts[4] = strings.ToLower(parts[2]), strings.ToLower(parts[4])
	id := "azure://" + strings.Join(parts, "/")
	_, err := oid.MarshalProviderID(id)
	return id, err
}
