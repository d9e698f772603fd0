package actuate

import (
	"errors"
	"fmt"

	"autotune/actuate/netdev"
	"autotune/model"
)

// napiSettings returns the settings of an instance, or [model.ErrReadOnly]
// where the kernel does not tell them.
func napiSettings(n netdev.NAPI) (model.Settings, error) {
	s, ok := n.Settings()
	if !ok {
		return model.Settings{}, fmt.Errorf("this kernel does not report the values per NAPI (that came with Linux 6.13): %w", model.ErrReadOnly)
	}
	return s, nil
}

// write brings an instance from one setting to another. Where the kernel
// refuses single attributes it writes the others, and returns the refusals.
func write(k Kernel, id uint32, from, to model.Settings) error {
	var refusals []error
	for _, step := range steps(from, to) {
		for !step.Empty() {
			err := k.SetNAPI(id, step)
			var refused *netdev.Error
			if errors.As(err, &refused) && refused.Attribute != "" && errors.Is(err, netdev.ErrUnsupported) {
				refusals = append(refusals, err)
				step = step.Without(refused.Attribute)
				continue
			}
			if err != nil {
				return errors.Join(append(refusals, err)...)
			}
			break
		}
	}
	return errors.Join(refusals...)
}
