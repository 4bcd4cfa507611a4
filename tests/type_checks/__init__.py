"""What a type checker makes of typical uses, and of mistakes."""
