package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// DeepCopyInto copies the record into out, which then shares no memory with it.
func (in *AttestedNodeSpec) DeepCopyInto(out *AttestedNodeSpec) {
	*out = *in
	out.Deadline = copyTime(in.Deadline)
	out.LastEnd = copyTime(in.LastEnd)
	if in.Pending != nil {
		pending := *in.Pending
		out.Pending = &pending
	}
	out.Certificates = slices.Clone(in.Certificates)
	for i := range out.Certificates {
		out.Certificates[i].NotBefore = copyTime(in.Certificates[i].NotBefore)
	}
}

// DeepCopy returns a copy that shares no memory with the record, or nil for nil.
func (in *AttestedNodeSpec) DeepCopy() *AttestedNodeSpec { return deepCopy(in) }

func copyTime(t *metav1.Time) *metav1.Time {
	if t == nil {
		return nil
	}
	c := *t
	return &c
}

// DeepCopyInto copies the object into out, which then shares no memory with it.
func (in *AttestedNode) DeepCopyInto(out *AttestedNode) {
	out.TypeMeta = in.TypeMeta
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	in.Spec.DeepCopyInto(&out.Spec)
}

// DeepCopy returns a copy that shares no memory with the object, or nil for nil.
func (in *AttestedNode) DeepCopy() *AttestedNode { return deepCopy(in) }

// DeepCopyObject is DeepCopy as a runtime.Object.
func (in *AttestedNode) DeepCopyObject() runtime.Object { return object(in.DeepCopy()) }

// DeepCopyInto copies the object into out, which then shares no memory with it.
func (in *AttestedMachine) DeepCopyInto(out *AttestedMachine) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
}

// DeepCopy returns a copy that shares no memory with the object, or nil for nil.
func (in *AttestedMachine) DeepCopy() *AttestedMachine { return deepCopy(in) }

// DeepCopyObject is DeepCopy as a runtime.Object.
func (in *AttestedMachine) DeepCopyObject() runtime.Object { return object(in.DeepCopy()) }

// DeepCopyInto copies the object into out, which then shares no memory with it.
func (in *AttestedMachineUID) DeepCopyInto(out *AttestedMachineUID) {
	*out = *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
}

// DeepCopy returns a copy that shares no memory with the object, or nil for nil.
func (in *AttestedMachineUID) DeepCopy() *AttestedMachineUID { return deepCopy(in) }

// DeepCopyObject is DeepCopy as a runtime.Object.
func (in *AttestedMachineUID) DeepCopyObject() runtime.Object { return object(in.DeepCopy()) }

// DeepCopyInto copies the list into out, which then shares no memory with it.
func (in *AttestedNodeList) DeepCopyInto(out *AttestedNodeList) {
	out.TypeMeta = in.TypeMeta
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = copyItems(in.Items, (*AttestedNode).DeepCopyInto)
}

// DeepCopy returns a copy that shares no memory with the list, or nil for nil.
func (in *AttestedNodeList) DeepCopy() *AttestedNodeList { return deepCopy(in) }

// DeepCopyObject is DeepCopy as a runtime.Object.
func (in *AttestedNodeList) DeepCopyObject() runtime.Object { return object(in.DeepCopy()) }

// DeepCopyInto copies the list into out, which then shares no memory with it.
func (in *AttestedMachineList) DeepCopyInto(out *AttestedMachineList) {
	out.TypeMeta = in.TypeMeta
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = copyItems(in.Items, (*AttestedMachine).DeepCopyInto)
}

// DeepCopy returns a copy that shares no memory with the list, or nil for nil.
func (in *AttestedMachineList) DeepCopy() *AttestedMachineList { return deepCopy(in) }

// DeepCopyObject is DeepCopy as a runtime.Object.
func (in *AttestedMachineList) DeepCopyObject() runtime.Object { return object(in.DeepCopy()) }

// DeepCopyInto copies the list into out, which then shares no memory with it.
func (in *AttestedMachineUIDList) DeepCopyInto(out *AttestedMachineUIDList) {
	out.TypeMeta = in.TypeMeta
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = copyItems(in.Items, (*AttestedMachineUID).DeepCopyInto)
}

// DeepCopy returns a copy that shares no memory with the list, or nil for nil.
func (in *AttestedMachineUIDList) DeepCopy() *AttestedMachineUIDList { return deepCopy(in) }

// DeepCopyObject is DeepCopy as a runtime.Object.
func (in *AttestedMachineUIDList) DeepCopyObject() runtime.Object { return object(in.DeepCopy()) }

// copier is a pointer to a type whose values can be copied into another value.
type copier[T any] interface {
	*T
	DeepCopyInto(out *T)
}

func deepCopy[T any, P copier[T]](in P) *T {
	if in == nil {
		return nil
	}
	out := new(T)
	in.DeepCopyInto(out)
	return out
}

// object keeps a nil pointer from becoming an interface that is not nil.
func object[T any, P interface {
	*T
	runtime.Object
}](p P) runtime.Object {
	if p == nil {
		return nil
	}
	return p
}

func copyItems[T any](in []T, into func(in, out *T)) []T {
	if in == nil {
		return nil
	}
	out := make([]T, len(in))
	for i := range in {
		into(&in[i], &out[i])
	}
	return out
}
