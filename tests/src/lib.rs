//! What only whole parts can show.
